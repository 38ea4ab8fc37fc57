package unitfile

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Lookup finds the files of a unit in systemd's unit path (the property UnitPath of its
// manager), in the order in which they apply: the unit file, then the drop-ins. It does
// not know the aliases of a unit. What systemd itself says about a loaded unit
// (FragmentPath, DropInPaths) takes precedence over it.
func Lookup(path []string, unit string) (files []string) {
	fragments := []string{unit}
	if t := template(unit); t != "" {
		fragments = append(fragments, t)
	}
	for _, name := range fragments {
		i := slices.IndexFunc(path, func(dir string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		})
		if i >= 0 {
			files = append(files, filepath.Join(path[i], name))
			break
		}
	}
	names := dropInNames(unit)
	var dirs []string
	for _, dir := range path {
		for _, name := range names {
			dirs = append(dirs, filepath.Join(dir, name+".d"))
		}
	}
	// The drop-ins for all units of a type come last.
	for _, dir := range path {
		dirs = append(dirs, filepath.Join(dir, strings.TrimPrefix(filepath.Ext(unit), ".")+".d"))
	}
	byName := map[string]string{}
	for _, dir := range dirs {
		entries, _ := os.ReadDir(dir)
		for _, e := range entries {
			if _, masked := byName[e.Name()]; !masked && strings.HasSuffix(e.Name(), ".conf") {
				byName[e.Name()] = filepath.Join(dir, e.Name())
			}
		}
	}
	var order []string
	for name := range byName {
		order = append(order, name)
	}
	slices.Sort(order)
	for _, name := range order {
		files = append(files, byName[name])
	}
	return files
}

// dropInNames lists the names whose drop-ins apply to a unit, the most specific first: for
// a-b@i.service these are a-b@i.service, a-b@.service, a-@i.service, a-@.service and
// a-.service.
func dropInNames(unit string) []string {
	suffix := filepath.Ext(unit)
	prefix, instance, of := strings.Cut(strings.TrimSuffix(unit, suffix), "@")
	var names []string
	for {
		if of {
			if instance != "" {
				names = append(names, prefix+"@"+instance+suffix)
			}
			names = append(names, prefix+"@"+suffix)
		}
		if !of || strings.HasSuffix(prefix, "-") {
			names = append(names, prefix+suffix)
		}
		dash := strings.LastIndexByte(strings.TrimSuffix(prefix, "-"), '-')
		if dash < 0 {
			return names
		}
		prefix = prefix[:dash+1]
	}
}

// template gives the name of an instance's template, foo@.service for foo@1.service.
func template(unit string) string {
	prefix, _, ok := strings.Cut(unit, "@")
	if !ok {
		return ""
	}
	return prefix + "@" + filepath.Ext(unit)
}
