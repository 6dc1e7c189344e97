// Package document is the frame of the HTML reports: each is one self-contained
// file that may not load anything.
package document

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the frame's parts
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"strings"

	"testbed/shaping/fidelity"
)

//go:generate sh echarts/refresh.sh

var (
	// frame has the templates that pages share, head and answers. head takes the
	// page's template title.
	//go:embed frame.html
	frame string
	//go:embed page.css
	style string
	//go:embed common.js
	common string
	//go:embed echarts/echarts.min.js
	chartLibrary string
)

// Together keeps numbers and their units on one line.
var Together = strings.NewReplacer(" µs", "\u00a0µs", " s ", "\u00a0s ", " %", "\u00a0%", " × ", "\u00a0×\u00a0")

// Answer is the answer to one of a reader's questions.
type Answer struct {
	Question string
	Short    string
	Text     []string
	Level    fidelity.Level // of trust, for its colour
}

// Page is a page in the frame.
type Page struct {
	HTML   string // a template
	Funcs  template.FuncMap
	Data   any    // the template's Page
	Script string // its own, besides the frame's
	// Computes reports whether the script starts a WebAssembly program.
	Computes bool
}

// Write writes the page from its template, with the style and the scripts.
func (p Page) Write(out io.Writer) error {
	t, err := template.New("frame").Funcs(p.Funcs).Parse(frame)
	if err == nil {
		t, err = t.New("page").Parse(p.HTML)
	}
	if err != nil {
		return fmt.Errorf("parsing the page: %w", err)
	}
	further := ""
	if p.Computes {
		further = " 'wasm-unsafe-eval'"
	}
	script := "(() => {\n'use strict';\n" + common + p.Script + "})();\n"
	// Only these two scripts may run, and nothing may be fetched: if text of a
	// scenario got into the page as markup, it could do nothing.
	security := fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; script-src '%s' '%s'%s",
		scriptHash(chartLibrary), scriptHash(script), further)
	var b bytes.Buffer
	err = t.Execute(&b, map[string]any{
		"Page": p.Data, "Security": security,
		"Style": template.CSS(style), "Library": template.JS(chartLibrary), "Script": template.JS(script),
	})
	if err != nil {
		return fmt.Errorf("filling in the page: %w", err)
	}
	_, err = out.Write(b.Bytes())
	return err
}

func scriptHash(source string) string {
	sum := sha256.Sum256([]byte(source))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
