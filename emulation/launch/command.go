package launch

import (
	"errors"
	"strings"
)

// errQuote is the error of a command with a quotation mark that is not closed.
var errQuote = errors.New("a quotation mark is not closed")

// SplitCommand splits a command into its words as a shell does: at white space
// that is not quoted. Within '…' everything is literal. A backslash escapes ",
// \, $ and ` within "…", and any character elsewhere. Nothing is expanded.
func SplitCommand(text string) (words []string, err error) {
	var word strings.Builder
	begun := false
	var quote rune
	escaped := false
	for _, c := range text {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`", c) {
				word.WriteByte('\\')
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, begun = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, begun = c, true
		case strings.ContainsRune(" \t\n", c):
			if begun {
				words = append(words, word.String())
				word.Reset()
				begun = false
			}
		default:
			word.WriteRune(c)
			begun = true
		}
	}
	switch {
	case quote != 0:
		return nil, errQuote
	case escaped:
		return nil, errors.New("there is nothing after the last backslash")
	case begun:
		words = append(words, word.String())
	}
	return words, nil
}
