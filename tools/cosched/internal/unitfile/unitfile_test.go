package unitfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const section = "X-Cosched"

func show(f *File) string {
	var b strings.Builder
	for _, a := range f.Assignments {
		fmt.Fprintf(&b, "%d %s=%s|", a.Line, a.Key, a.Value)
	}
	for _, i := range f.Issues {
		fmt.Fprintf(&b, "! %d %s|", i.Line, i.Text)
	}
	return b.String()
}

// Each case was tried with systemd-analyze verify of systemd 252, in a section that systemd knows.
func TestParse(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"nothing", "", ""},
		{"other sections", "A=0\n[Service]\nA=1\nnone\n=\n[X-Cosched]\nA=2\n[Install]\nA=3\n", "7 A=2|"},
		{"several parts", "[X-Cosched]\nA=1\n[Service]\nA=2\n[X-Cosched]\nA=\n", "2 A=1|6 A=|"},
		{"blanks", " \t[X-Cosched]  \n  A =  a b \t\n\n", "2 A=a b|"},
		{"names have case", "[x-cosched]\nA=1\n[X-Cosched ]\nA=2\n", ""},
		{"comments", "[X-Cosched]\n#A=1\n  ;A=2\nA=3 # not one\n", "4 A=3 # not one|"},
		{"continued", "[X-Cosched]\nA=a \\\n b\\\nc\nB=2\n", "2 A=a   b c|5 B=2|"},
		{"continued through comments", "[X-Cosched]\nA=a\\\n# B=1\n;\nb\n", "2 A=a b|"},
		{"continued past the end", "[X-Cosched]\nA=a\\", "2 A=a|"},
		{"continued to a comment at the end", "[X-Cosched]\nA=a\\\n#b\n", "2 A=a|"},
		{"continued into a header", "[X-Cosched]\nA=\\\n[Service]\nB=1\n", "2 A=[Service]|4 B=1|"},
		{"an escaped backslash", "[X-Cosched]\nA=a\\\\\nB=1\n", `2 A=a\\|3 B=1|`},
		{"a key on two lines", "[X-Cosched]\nA\\\n=4\n", "2 A=4|"},
		{"no quotes", "[X-Cosched]\nA=\"1 2\"\n", `2 A="1 2"|`},
		{"byte order mark, once", bom + "[X-Cosched]\n" + bom + "A=1\n", "2 \uFEFFA=1|"},
		{"line ends", "[X-Cosched]\rA=1\r\nB=2\x00C=3\n\rD=4\r\r\n", "2 A=1|3 B=2|4 C=3|5 D=4|"},
		{"lines without meaning", "[X-Cosched]\nA\n=1\nB=1\n", `4 B=1|! 2 no = in "A", ignored|! 3 nothing before the = in "=1", ignored|`},
		{"a header that is none", "[X-Cosched]\nA=1\n[Service]x\n[X-Cosched]\nA=2\n", `2 A=1|! 3 "[Service]x" is not a section header: systemd reads no further|`},
		{"a bad header", "[X-Cosched]\nA=1\n[\"a]\nA=2\n", `2 A=1|! 3 bad characters in the section header "[\"a]": systemd reads no further|`},
		{"not UTF-8", "[X-Cosched]\nA=1\n[Service]\nB=\xff\n[X-Cosched]\nA=2\n", "2 A=1|! 4 not UTF-8: systemd reads no further|"},
		{"too long", "[X-Cosched]\nA=1\n#" + strings.Repeat("x", MaxLine) + "\nA=2", "2 A=1|! 3 the line is too long: systemd reads no further|"},
		{"too long together", "[X-Cosched]\n" + strings.Repeat(strings.Repeat("x", MaxLine/2)+"\\\n", 2) + "\nA=2", "! 3 the line is too long: systemd reads no further|"},
	} {
		if got := show(Parse([]byte(tc.text), section)); got != tc.want {
			t.Errorf("%s:\n got %s\nwant %s", tc.name, got, tc.want)
		}
	}
}

func TestSet(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"new", "", "[X-Cosched]\nA=new\n"},
		{"no such section", "[Service]\nNice=1", "[Service]\nNice=1\n\n[X-Cosched]\nA=new\n"},
		{"no such key", "[X-Cosched]\nB=1\n# about B\n\n[Service]\nA=0\n", "[X-Cosched]\nB=1\n# about B\nA=new\n\n[Service]\nA=0\n"},
		{"in place", "# mine\n[X-Cosched]\n A = 1\nB=1\n", "# mine\n[X-Cosched]\nA=new\nB=1\n"},
		{"of several", "[X-Cosched]\nA=1\nB=1\nA=\\\n2\n# end\n", "[X-Cosched]\nB=1\nA=new\n# end\n"},
		{"no newline at the end", "[X-Cosched]\nB=1", "[X-Cosched]\nB=1\nA=new\n"},
		{"an empty section", "[X-Cosched]", "[X-Cosched]\nA=new\n"},
	} {
		if got, err := Set([]byte(tc.text), section, "A", "new"); err != nil || string(got) != tc.want {
			t.Errorf("%s: %v\n got %q\nwant %q", tc.name, err, got, tc.want)
		}
	}
	if _, err := Set([]byte("[X-Cosched]\n[Service\nA=1\n"), section, "A", "new"); err == nil || !strings.Contains(err.Error(), `line 2: "[Service" is not a section header`) {
		t.Errorf("in a file that systemd does not read: %v", err)
	}
}

// FuzzParse checks that no text makes the parser fail, and that Set changes only one key.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"[Unit]\nDescription=x\n\n[X-Cosched]\nCPUsPreferred=llc:0\nWeights=4 1000\n",
		"[X-Cosched]\nCPUsPreferred=\\\n# no\n 0-3\n", bom + "[X-Cosched]\r\nWeights=\x00\n", "[X-Cosched]\nA=\xff\n[", "[X-Cosched]\\\n", "\\\n[X-Cosched]\nWeights",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		before := Parse(text, section)
		for _, a := range before.Assignments {
			if a.Key == "" || a.Key != strings.Trim(a.Key, whitespace) || strings.ContainsAny(a.Value, "\n\r\x00") || a.Line < 1 || a.start >= a.end || a.end > len(text) {
				t.Fatalf("%+v", a)
			}
		}
		after, err := Set(text, section, "CPUsPreferred", "0-3")
		if (err != nil) != (before.Stopped > 0) {
			t.Fatalf("stopped at %d, %v", before.Stopped, err)
		}
		if err != nil {
			return
		}
		var want, got []string
		for _, a := range before.Assignments {
			if a.Key != "CPUsPreferred" {
				want = append(want, a.Key+"="+a.Value)
			}
		}
		seen := 0
		for _, a := range Parse(after, section).Assignments {
			if a.Key == "CPUsPreferred" && a.Value == "0-3" {
				seen++
			} else {
				got = append(got, a.Key+"="+a.Value)
			}
		}
		if seen != 1 || !slices.Equal(got, want) {
			t.Fatalf("%q became %q: %d of it, and %q instead of %q", text, after, seen, got, want)
		}
	})
}

func TestDropInNames(t *testing.T) {
	// The expected results are those of systemd 252.
	for unit, want := range map[string]string{
		"a.service":           "a.service",
		"foo-bar-baz.service": "foo-bar-baz.service foo-bar-.service foo-.service",
		"foo-bar--x.service":  "foo-bar--x.service foo-bar--.service foo-bar-.service foo-.service",
		"foo-bar@x.service":   "foo-bar@x.service foo-bar@.service foo-@x.service foo-@.service foo-.service",
		"a@.service":          "a@.service",
		"user-1000.slice":     "user-1000.slice user-.slice",
		"-.slice":             "-.slice",
	} {
		if got := strings.Join(dropInNames(unit), " "); got != want {
			t.Errorf("%s: %s, want %s", unit, got, want)
		}
	}
}

func TestLookup(t *testing.T) {
	dir := t.TempDir()
	path := []string{filepath.Join(dir, "etc"), filepath.Join(dir, "run"), filepath.Join(dir, "lib")}
	for _, name := range []string{
		"lib/a-b@.service", "etc/a-b@.service", "lib/a-b@2.service",
		"lib/a-b@1.service.d/50.conf", "etc/a-.service.d/50.conf", "run/a-b@.service.d/40.conf", "run/a-b@.service.d/README",
		"etc/service.d/40.conf", "etc/service.d/90.conf", "lib/a-b@1.service.d/60.conf",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for unit, want := range map[string]string{
		"a-b@1.service": "etc/a-b@.service run/a-b@.service.d/40.conf etc/a-.service.d/50.conf lib/a-b@1.service.d/60.conf etc/service.d/90.conf",
		"a-b@2.service": "lib/a-b@2.service run/a-b@.service.d/40.conf etc/a-.service.d/50.conf etc/service.d/90.conf",
		"c.scope":       "",
	} {
		got := strings.ReplaceAll(strings.Join(Lookup(path, unit), " "), dir+"/", "")
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", unit, got, want)
		}
	}
}
