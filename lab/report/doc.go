// Package report turns results into documents for people: one HTML page that needs
// nothing else (no script, no font, no request; light and dark; print), a Markdown
// summary, and a comparison of two runs.
//
// # What it says and how
//
// A figure is the median of a cell's repetitions, with the least and the greatest.
// Two figures differ if these ranges, widened for few repetitions (apart), do not
// touch; otherwise the difference is within the spread and marked so. A ratio is quorate's median
// of the effective TPS divided by the other's. Beside it are the ratio of the raw TPS, if that is different, and the
// same ratio of the articles (articles.toml), with their system DN in quorate's place.
// Cells that failed or were skipped are in every table with their reason.
//
// # Owns
//
// The articles' figures, the page's template and style. Charts are inline SVG made
// by chart.go; a system has the same colour and dash everywhere (style.css), and its
// name beside its line, so that nothing depends on colours.
//
// The package is pure: no goroutines, no clock, no files but embedded ones.
package report
