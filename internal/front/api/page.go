package api

import (
	"embed"
	"net/http"
)

//go:embed page
var pageFiles embed.FS

// pagePolicy lets the page load files of this port and nothing else: no inline script, no other
// host, no form, no frame.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// handlePage adds the page. Its files have no data of the cluster, so they need no token.
func handlePage(mux *http.ServeMux) {
	for path, file := range map[string]string{
		"/{$}": "page/index.html", "/app.js": "page/app.js", "/style.css": "page/style.css", "/icon.svg": "page/icon.svg",
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Security-Policy", pagePolicy)
			h.Set("X-Content-Type-Options", "nosniff")
			h.Set("Referrer-Policy", "no-referrer")
			h.Set("Cross-Origin-Opener-Policy", "same-origin")
			h.Set("Cache-Control", "no-cache")
			http.ServeFileFS(w, r, pageFiles, file)
		})
	}
}
