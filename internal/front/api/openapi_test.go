package api

import (
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"maps"
	"net/http"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/cluster"
	"github.com/quorate/quorate/internal/cluster/status"
	"github.com/quorate/quorate/internal/front/control"
)

var rewrite = flag.Bool("rewrite", false, "write openapi.json again")

// object is a JSON object.
type object = map[string]any

// operation is what openapi.json has of a route beside its path.
type operation struct {
	summary, text string
	params        []object
	asks          any // the type of the body; nil = there is none
	answers       any // the type of a 200; nil = a stream of events
	fails         []int
	required      []string // fields of the body
}

// operations describes the routes. All failures have the same form.
func operations() map[string]operation {
	last := object{"name": "last", "in": "query", "required": false, "description": "How many rows, the newest.",
		"schema": object{"type": "integer", "minimum": 1, "maximum": historyMax, "default": historyDefault}}
	return map[string]operation{
		"GET /v1/status":       {summary: "The cluster as this node sees it", text: "As `quorate status --json`.", answers: status.Cluster{}},
		"GET /v1/nodes":        {summary: "The nodes of the cluster", text: "The nodes of /v1/status alone.", answers: NodesAnswer{}},
		"GET /v1/history":      {summary: "What happened", text: "The rows of `quorate history --json`, oldest first.", params: []object{last}, answers: HistoryAnswer{}, fails: []int{400}},
		"GET /v1/openapi.json": {summary: "This document", answers: object{}},
		"GET /v1/events": {summary: "What is so now, as server-sent events", text: "Event `status` comes twice a second and has a Cluster; event `history` comes first, and when something has happened, " +
			"and has a HistoryAnswer. A stream ends after ten minutes: connect again. There are 16 streams, 8 of them for one address; more are refused with 503."},
		"POST /v1/switchover": {summary: "Move the primary in order", text: "As `quorate switchover`. It may take 100 seconds. Who asks is in the audit log.",
			asks: cluster.SwitchoverRequest{}, answers: cluster.Switchover{}, fails: []int{400, 403, 405, 409, 413, 415, 500}},
		"POST /v1/maintenance": {summary: "Switch maintenance on or off", text: "As `quorate maintenance`.",
			asks: MaintenanceBody{}, required: []string{"on"}, answers: cluster.ChangeResult{}, fails: []int{400, 403, 405, 409, 413, 415, 500}},
	}
}

// bounds are the limits of a request's fields, and the figures of an answer that may be null.
func bounds() map[string]object {
	return map[string]object{
		"SwitchoverRequest.max_pause_ns": {"minimum": 5e8, "maximum": 2e10, "default": cluster.MaxPauseDefault},
		"SwitchoverRequest.wait_ns":      {"minimum": 0, "maximum": 6e10, "default": cluster.WaitDefault},
		"Node.role_last":                 {"enum": roles()},
		"Node.lag_transactions":          {"type": []string{"integer", "null"}},
		"Node.lag_bytes":                 {"type": []string{"integer", "null"}},
		"Node.lag_seconds":               {"type": []string{"number", "null"}},
		"MaintenanceBody.for_ns":         {"anyOf": []object{{"const": 0}, {"minimum": 6e10, "maximum": 2592e12}}},
	}
}

// roles are those that a node can have.
func roles() (all []any) {
	for _, r := range status.Roles() {
		all = append(all, string(r))
	}
	return all
}

// enums are the types with few values.
func enums() map[reflect.Type][]any {
	shown := append([]any{string(status.RoleUnreachable), string(status.RoleRefused), string(status.RoleUnknown)}, roles()...)
	return map[reflect.Type][]any{
		reflect.TypeFor[status.Role]():  shown,
		reflect.TypeFor[status.Level](): {"ok", "notice", "alarm"},
	}
}

// schemas makes JSON schemas of Go types, with their comments.
type schemas struct {
	docs    map[string]string // by "package.Type" or "package.Type.Field"
	made    object
	request bool // the schema is of a request: unknown fields are not allowed
}

// comments reads the comments of packages' types.
func comments(t *testing.T, dirs ...string) map[string]string {
	docs := map[string]string{}
	for _, dir := range dirs {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
				continue
			}
			parsed, err := parser.ParseFile(gotoken.NewFileSet(), path.Join(dir, f.Name()), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(parsed, func(n ast.Node) bool {
				d, ok := n.(*ast.GenDecl)
				if !ok {
					return true
				}
				for _, spec := range d.Specs {
					if s, ok := spec.(*ast.TypeSpec); ok {
						name := parsed.Name.Name + "." + s.Name.Name
						docs[name] = words(d.Doc)
						noteFields(docs, name, s)
					}
				}
				return false
			})
		}
	}
	return docs
}

// noteFields notes the comments of a struct's fields. A comment may be about several fields, up to
// an empty line or the next comment; only the first of these fields gets it.
func noteFields(docs map[string]string, name string, s *ast.TypeSpec) {
	if st, ok := s.Type.(*ast.StructType); ok {
		for _, f := range st.Fields.List {
			for _, id := range f.Names {
				docs[name+"."+id.Name] = words(f.Doc)
			}
		}
	}
}

func words(c *ast.CommentGroup) string { return strings.Join(strings.Fields(c.Text()), " ") }

// of returns the schema of a type.
func (s *schemas) of(t reflect.Type) object {
	if values := enums()[t]; values != nil {
		return object{"type": "string", "enum": values}
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case reflect.TypeFor[object]():
		return object{"type": "object"}
	}
	switch t.Kind() {
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem())}
	case reflect.Struct:
		if s.made[t.Name()] == nil {
			s.made[t.Name()] = object{} // it may be in itself
			s.made[t.Name()] = s.structure(t)
		}
		return object{"$ref": "#/components/schemas/" + t.Name()}
	}
	panic("no schema for " + t.String())
}

func (s *schemas) structure(t reflect.Type) object {
	properties, required := object{}, []string{}
	s.fields(t, t.Name(), properties, &required)
	o := object{"type": "object", "properties": properties}
	if text := s.docs[t.String()]; text != "" {
		o["description"] = text
	}
	if s.request {
		o["additionalProperties"] = false
	} else if len(required) > 0 {
		slices.Sort(required)
		o["required"] = required
	}
	return o
}

func (s *schemas) fields(t reflect.Type, of string, properties object, required *[]string) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			s.fields(f.Type, of, properties, required)
			continue
		}
		if name == "-" {
			continue
		}
		o := s.of(f.Type)
		optional := strings.Contains(options, "omit")
		if strings.Contains(options, "string") {
			o = object{"type": "string", "pattern": "^[0-9]+$"}
		}
		if f.Type.Kind() == reflect.Slice && !optional {
			o["type"] = []string{"array", "null"}
		}
		maps.Copy(o, bounds()[of+"."+name])
		if text := s.docs[t.String()+"."+f.Name]; text != "" {
			o["description"] = text
		}
		properties[name] = o
		if !optional {
			*required = append(*required, name)
		}
	}
}

// document makes openapi.json.
func document(t *testing.T) object {
	s := &schemas{docs: comments(t, ".", "../../cluster", "../../cluster/status", "../control"), made: object{}}
	failure := object{"description": "What is wrong, in the one form of errors.", "content": object{"application/json": object{"schema": s.of(reflect.TypeFor[control.Failure]())}}}
	paths := object{}
	for _, r := range New(Config{}, nil).v1() {
		op, ok := operations()[r.method+" "+r.path]
		if !ok {
			t.Errorf("%s %s is not described", r.method, r.path)
			continue
		}
		content := object{"text/event-stream": object{"schema": object{"type": "string"}}}
		if op.answers != nil {
			content = object{"application/json": object{"schema": s.of(reflect.TypeOf(op.answers))}}
		}
		responses := object{"200": object{"description": op.summary + ".", "content": content}}
		fails := append([]int{401, 403, 503}, op.fails...)
		if r.path == "/v1/openapi.json" {
			fails = nil
		}
		for _, code := range fails {
			responses[fmt.Sprint(code)] = failure
		}
		o := object{"summary": op.summary, "operationId": strings.NewReplacer("/v1/", "", ".json", "").Replace(r.path), "responses": responses, "security": []object{{}, {"token": []string{}}}}
		if op.text != "" {
			o["description"] = op.text
		}
		if op.params != nil {
			o["parameters"] = op.params
		}
		if op.asks != nil {
			s.request = true
			o["requestBody"] = object{"required": true, "content": object{"application/json": object{"schema": s.of(reflect.TypeOf(op.asks))}}}
			if s.request = false; op.required != nil {
				s.made[reflect.TypeOf(op.asks).Name()].(object)["required"] = op.required
			}
			o["security"] = []object{{"token": []string{}}}
		}
		paths[r.path] = object{strings.ToLower(r.method): o}
	}
	return object{
		"openapi": "3.1.0",
		"info": object{"title": "quorate", "version": "1", "license": object{"name": "Apache-2.0", "identifier": "Apache-2.0"},
			"description": "The API of a node's agent. Fields are added, and never renamed. Durations whose names end in _ns are nanoseconds. docs/api.md says more."},
		"paths": paths,
		"components": object{"schemas": s.made, "securitySchemes": object{"token": object{"type": "http", "scheme": "bearer",
			"description": "A token of api.tokens_file. Reading needs one only if there is a token with the role read; operating needs the role operate, on the node's own host."}}},
	}
}

// TestOpenAPI compares openapi.json with the routes and the types, both ways; -rewrite makes it
// again.
func TestOpenAPI(t *testing.T) {
	want, err := json.MarshalIndent(document(t), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *rewrite {
		if err := os.WriteFile("openapi.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(string(want), string(openAPI)); d != "" {
		t.Errorf("openapi.json is not what the routes and types say (go test ./internal/front/api -run TestOpenAPI -rewrite) (-want +got):\n%s", d)
	}
	routes := map[string]bool{}
	for _, r := range New(Config{}, nil).v1() {
		routes[r.method+" "+r.path] = true
	}
	for name := range operations() {
		if !routes[name] {
			t.Errorf("%s is described, and is no route", name)
		}
	}
}

// misfits says where a value violates a schema of the document.
func misfits(doc, schema object, value any, at string) (said []string) {
	if ref, ok := schema["$ref"].(string); ok {
		named := doc["components"].(object)["schemas"].(object)[path.Base(ref)].(object)
		return misfits(doc, named, value, at)
	}
	kinds, ok := schema["type"].([]any)
	if !ok {
		kinds = []any{schema["type"]}
	}
	kind := ""
	switch v := value.(type) {
	case nil:
		kind = "null"
	case bool:
		kind = "boolean"
	case string:
		kind = "string"
		if schema["format"] == "date-time" {
			if _, err := time.Parse(time.RFC3339Nano, v); err != nil {
				said = append(said, at+" is no time")
			}
		}
	case float64:
		kind = "number"
		if v == float64(int64(v)) && !slices.Contains(kinds, any("number")) {
			kind = "integer"
		}
	case []any:
		kind = "array"
		items, _ := schema["items"].(object)
		for i, item := range v {
			said = append(said, misfits(doc, items, item, fmt.Sprintf("%s[%d]", at, i))...)
		}
	case object:
		kind = "object"
		said = append(said, objectMisfits(doc, schema, v, at)...)
	}
	if !slices.Contains(kinds, any(kind)) {
		said = append(said, fmt.Sprintf("%s is a %s, not of %v", at, kind, kinds))
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, value) {
		said = append(said, fmt.Sprintf("%s is %v, none of %v", at, value, enum))
	}
	return said
}

// objectMisfits expects the required fields, and no field that the document does not know.
func objectMisfits(doc, schema, value object, at string) (said []string) {
	properties, _ := schema["properties"].(object)
	more, _ := schema["additionalProperties"].(object)
	for name, v := range value {
		property, known := properties[name].(object)
		switch {
		case known:
			said = append(said, misfits(doc, property, v, at+"."+name)...)
		case more != nil:
			said = append(said, misfits(doc, more, v, at+"."+name)...)
		case properties != nil:
			said = append(said, at+"."+name+" is not described")
		}
	}
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := value[name.(string)]; !ok {
			said = append(said, at+"."+name.(string)+" is missing")
		}
	}
	return said
}

// fits expects an answer that the document describes.
func fits(t *testing.T, method, route string, code int, body string) {
	t.Helper()
	var doc object
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	responses := doc["paths"].(object)[route].(object)[strings.ToLower(method)].(object)["responses"].(object)
	response, ok := responses[fmt.Sprint(code)].(object)
	if !ok {
		t.Errorf("%s %s: %d is not described: %s", method, route, code, body)
		return
	}
	content := response["content"].(object)["application/json"].(object)
	var value any
	if err := json.Unmarshal([]byte(body), &value); err != nil {
		t.Errorf("%s %s: %d: %v: %s", method, route, code, err, body)
		return
	}
	if said := misfits(doc, content["schema"].(object), value, ""); len(said) > 0 {
		t.Errorf("%s %s: %d: %s\n%s", method, route, code, strings.Join(said, "; "), body)
	}
}

// full returns a value of a type in which everything is set.
func full(t reflect.Type, depth int) reflect.Value {
	v := reflect.New(t).Elem()
	switch {
	case t == reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1, 0).UTC()))
	case t == reflect.TypeFor[status.Role]():
		v.SetString(string(status.RoleReplica))
	case t == reflect.TypeFor[status.Level]():
		v.SetString(string(status.LevelAlarm))
	case depth == 0:
	case t.Kind() == reflect.String:
		v.SetString("x")
	case t.Kind() == reflect.Bool:
		v.SetBool(true)
	case v.CanFloat():
		v.SetFloat(1.5)
	case v.CanInt():
		v.SetInt(2)
	case v.CanUint():
		v.SetUint(3)
	case t.Kind() == reflect.Pointer:
		v.Set(reflect.New(t.Elem()))
		v.Elem().Set(full(t.Elem(), depth-1))
	case t.Kind() == reflect.Slice:
		v.Set(reflect.Append(v, full(t.Elem(), depth-1)))
	case t.Kind() == reflect.Map:
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(full(t.Key(), depth-1), full(t.Elem(), depth-1))
	case t.Kind() == reflect.Struct:
		for f := range t.Fields() {
			if f.IsExported() {
				v.FieldByIndex(f.Index).Set(full(f.Type, depth-1))
			}
		}
	}
	return v
}

// TestAnswersAreDescribed: the handlers' answers are as openapi.json describes them, with every
// field set and with none.
func TestAnswersAreDescribed(t *testing.T) {
	const depth = 8
	rows := []cluster.HistoryRow{full(reflect.TypeFor[cluster.HistoryRow](), depth).Interface().(cluster.HistoryRow), {}}
	for _, st := range []status.Cluster{{}, statusOf(status.RoleReplica, status.MysqldRunning), full(reflect.TypeFor[status.Cluster](), depth).Interface().(status.Cluster)} {
		s := start(t, &fakeProvider{status: st, control: answering(t, rows)})
		for _, r := range s.v1() {
			if r.method == http.MethodGet && r.path != "/v1/events" {
				code, body := get(t, s, r.path)
				fits(t, r.method, r.path, code, body)
			}
		}
		code, body := get(t, s, "/v1/history?last=1001")
		if code != http.StatusBadRequest {
			t.Errorf("too many rows: %d", code)
		}
		fits(t, "GET", "/v1/history", code, body)
	}
}
