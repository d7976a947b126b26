package binlog

import "testing"

func TestGrantedOn(t *testing.T) {
	for text, want := range map[string]string{
		"GRANT SELECT ON `a_b`.* TO u": "a_b", "GRANT SELECT, INSERT (x) ON TABLE a.t TO u": "a", "revoke if exists all on `a\\_b` . * from u": "a_b",
		"GRANT EXECUTE ON PROCEDURE a.p TO u": "a", "GRANT SELECT ON t TO u": "default", "GRANT SELECT ON * TO u": "default", "GRANT SELECT ON `table`.t TO u": "table",
		"GRANT SELECT ON *.* TO a": "", "GRANT r TO u": "", "GRANT PROXY ON a TO b": "", "GRANT ON t TO u": "", "DROP USER u /* GRANT SELECT ON a.* */": "", "": "", "GRANT": "", "GRANT SELECT ON": "",
	} {
		if got := GrantedOn(text, "default"); got != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
