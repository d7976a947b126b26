package mysqld

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/quorate/quorate/internal/mysql/routermeta"
)

// TestRouterAccount writes what MySQL Router reads, with the account made for it. The account can write nowhere
// else, and only quorate can change it.
func TestRouterAccount(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	p := start(t, s)
	openAlone(t, p)
	dba := login(t, s, DBAUser, s.cfg.Secrets.DBA)
	account := login(t, s, RouterUser, s.cfg.Secrets.Router())
	mustBeForbidden(t, account, "CREATE DATABASE app", "CREATE TABLE mysqlxinnodb_cluster_metadata.t (a INT PRIMARY KEY)", "SELECT * FROM mysql.user", "CREATE USER x@y",
		"GRANT SELECT ON "+RouterSchema+".* TO dba@localhost", "SET SESSION sql_log_bin = 0", "SET GLOBAL super_read_only = OFF", "SHUTDOWN",
		"CREATE PROCEDURE "+RouterSchema+".p() SELECT 1", "CREATE TRIGGER "+RouterSchema+".t BEFORE INSERT ON "+RouterSchema+".routers FOR EACH ROW SET @a = 1")
	mustBeForbidden(t, dba, "ALTER USER "+RouterUser+"@localhost IDENTIFIED BY 'Aa1-mine'", "DROP USER "+RouterUser+"@localhost")

	db, err := p.OpenOwnSchemas()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	schema := routermeta.New(db)
	want := routermeta.Metadata{ClusterID: "id", Cluster: "shop", View: 1000, Instances: []routermeta.Instance{
		{Name: "a", UUID: "ua", Address: "10.0.0.1:3306", Primary: true}, {Name: "b", UUID: "ub", Address: "10.0.0.2:3306", Hidden: true}}}
	update := func(create bool, want, found, is routermeta.Metadata, wrote bool) {
		t.Helper()
		got, did, err := schema.Update(ctx(t), create, func(got routermeta.Metadata) routermeta.Metadata {
			if diff := cmp.Diff(found, got); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
			return want
		})
		if diff := cmp.Diff(is, got); err != nil || diff != "" || did != wrote {
			t.Errorf("Update wrote: %t, %v (-want +got):\n%s", did, err, diff)
		}
	}
	empty := routermeta.Metadata{}
	update(false, want, empty, empty, false) // there is none, and none is made
	mustExec(t, dba, "CREATE DATABASE "+RouterSchema, "CREATE TABLE "+RouterSchema+".clusters (a INT PRIMARY KEY)")
	update(false, want, empty, empty, false)
	if _, _, err := schema.Update(ctx(t), true, nil); !errors.Is(err, routermeta.ErrForeign) {
		t.Errorf("a schema that is somebody else's: %v", err)
	}
	mustExec(t, dba, "DROP DATABASE "+RouterSchema)
	update(true, want, empty, want, true)
	update(true, want, want, want, false)
	moved := routermeta.Metadata{ClusterID: "id", Cluster: "shop", View: 2000, Instances: []routermeta.Instance{
		{Name: "b", UUID: "ub", Address: "10.0.0.2:3306", Primary: true}, {Name: "c", UUID: "uc", Address: "10.0.0.3:3306"}}}
	update(false, moved, want, moved, true)
	// An incomplete layout is completed.
	mustExec(t, account, "DELETE FROM "+RouterSchema+".quorate", "DROP VIEW "+RouterSchema+".v2_ar_members")
	update(true, moved, moved, moved, false)

	// The statements that Router writes with, and its queries.
	mustExec(t, dba, "INSERT INTO "+RouterSchema+".v2_routers (address, product_name, router_name) VALUES ('h', 'MySQL Router', 'r')",
		"UPDATE "+RouterSchema+".v2_ar_clusters SET router_options = JSON_MERGE_PATCH(IF(router_options IS NULL, '{}', router_options), CAST('{\"a\": 1}' AS JSON)) WHERE cluster_id = 'id'")
	var view int
	var options, member string
	if err := dba.QueryRowContext(ctx(t), `SELECT m.view_id, CONCAT(m.member_id, ' ', m.member_role, ' ', i.endpoint), o.router_options FROM `+RouterSchema+`.v2_ar_members m
		JOIN `+RouterSchema+`.v2_instances i ON i.instance_id = m.instance_id JOIN `+RouterSchema+`.v2_routers r JOIN `+RouterSchema+`.v2_router_options o
		ON o.router_id = r.router_id WHERE i.label = 'b'`).Scan(&view, &member, &options); err != nil || view != 2000 || member != "ub PRIMARY 10.0.0.2:3306" {
		t.Errorf("Router is told %d, %q, %q: %v", view, member, options, err)
	}
	if grants, err := p.Admin().ScanGrants(ctx(t)); err != nil || len(grants) != 0 {
		t.Errorf("ScanGrants: %v, %v", grants, err)
	}
	if names, err := p.Admin().ReservedNames(ctx(t)); err != nil || len(names) != 0 {
		t.Errorf("ReservedNames: %v, %v", names, err)
	}
}
