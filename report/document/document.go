// Package document is the frame of the HTML reports: one file each, which needs
// nothing else and may reach nothing.
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
	//go:embed page.css
	style string
	//go:embed common.js
	common string
	//go:embed echarts/echarts.min.js
	chartLibrary string
)

// Together keeps numbers and their units in one line.
var Together = strings.NewReplacer(" µs", "\u00a0µs", " s ", "\u00a0s ", " %", "\u00a0%", " × ", "\u00a0×\u00a0")

// Answer is one of the questions that a reader has.
type Answer struct {
	Question string
	Short    string
	Text     []string
	Level    fidelity.Level // of trust, for its colour
}

// Write fills a template in with a page, the style and the scripts, of which own
// is the page's.
func Write(out io.Writer, t *template.Template, p any, own string) error {
	return write(out, t, p, own, "")
}

// WriteComputing writes a page whose script may start a WebAssembly program.
func WriteComputing(out io.Writer, t *template.Template, p any, own string) error {
	return write(out, t, p, own, " 'wasm-unsafe-eval'")
}

func write(out io.Writer, t *template.Template, p any, own, further string) error {
	script := "(() => {\n'use strict';\n" + common + own + "})();\n"
	// Only these two scripts may run, and nothing may be fetched: were text of
	// a scenario to get into the page as markup, it could do nothing.
	security := fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; script-src '%s' '%s'%s",
		scriptHash(chartLibrary), scriptHash(script), further)
	var b bytes.Buffer
	err := t.Execute(&b, map[string]any{
		"Page": p, "Security": security,
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
