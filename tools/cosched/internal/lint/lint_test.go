package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckLinks(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.rst"), filepath.Join(dir, "b.rst")
	plot := filepath.Join(dir, "plot.svg")
	for _, path := range []string{a, b, plot} {
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	pages := map[string]string{
		a: `<document ids="top" names="top">
    <section classes="x" ids="speed id1" names="speed">
        <reference name="own" refuri="#speed">
        <reference name="other" refuri="b.rst#costs">
        <reference name="page" refuri="b.rst">
        <reference name="mail" refuri="mailto:x#y">
        <image uri="plot.svg">`,
		b: `<document ids="costs" names="costs">
        <target ids="named" names="named" refuri="a.rst#id1">`,
	}
	if err := checkLinks(pages); err != nil {
		t.Error(err)
	}
	for _, wrong := range []struct{ link, says string }{
		{`refuri="#sped"`, "#sped, a section that " + a},
		{`refuri="b.rst#named"`, "#named, a section that " + b}, // the name of a link is no section
		{`refuri="c.rst"`, "c.rst, which does not exist"},
		{`uri="plot.png"`, "plot.png, which does not exist"},
	} {
		err := checkLinks(map[string]string{a: pages[a] + "\n<reference " + wrong.link + ">", b: pages[b]})
		if err == nil || !strings.Contains(err.Error(), wrong.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, expected one error with %q", wrong.link, err, wrong.says)
		}
	}
}

func TestTableAsText(t *testing.T) {
	for text, expected := range map[string]bool{
		"<paragraph>\n    both:\n    =====  ====\n    a      b": true,
		"<literal_block>\n    a == b === c":                     false,
		"<title>\n    =====":                                    false,
	} {
		if got := tableAsText.MatchString(text); got != expected {
			t.Errorf("%q: %v", text, got)
		}
	}
}
