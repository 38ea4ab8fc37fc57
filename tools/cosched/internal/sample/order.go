package sample

import (
	"cmp"
	"slices"
	"strings"
)

// Order is an order that clusters can be sorted in, the most interesting cluster first.
type Order struct {
	Name string
	less func(a, b *Use) int
}

// Orders are all orders. The first one is that of the tree.
var Orders = []Order{
	{"name", nil},
	{"cpu", most(func(u *Use) float64 { return u.CPU })},
	{"home", func(a, b *Use) int { return cmp.Compare(atHome(a), atHome(b)) }}, // the worst first
	{"spilled", most(func(u *Use) float64 { return u.Spilled + u.Overflowed })},
	{"returned", most(func(u *Use) float64 { return u.Returned + u.Swapped })},
	{"threads", most(func(u *Use) float64 { return float64(u.Threads) })},
}

func most(f func(*Use) float64) func(a, b *Use) int {
	return func(a, b *Use) int { return cmp.Compare(f(b), f(a)) }
}

// atHome sorts clusters that did not run last.
func atHome(u *Use) float64 {
	if u.AtHome == nil {
		return 101
	}
	return *u.AtHome
}

// FindOrder returns the index of the order with a name.
func FindOrder(name string) (int, bool) {
	i := slices.IndexFunc(Orders, func(o Order) bool { return o.Name == name })
	return i, i >= 0
}

// Select returns the clusters whose name contains a text, in upper or lower case, sorted.
// Clusters that are equal stay in the order of the tree.
func (v *Interval) Select(filter string, order int, reverse bool) []*Use {
	list := make([]*Use, 0, len(v.Clusters))
	filter = strings.ToLower(filter)
	for i := range v.Clusters {
		if filter == "" || strings.Contains(strings.ToLower(v.Clusters[i].Name), filter) {
			list = append(list, &v.Clusters[i])
		}
	}
	if less := Orders[order].less; less != nil {
		slices.SortStableFunc(list, less)
	}
	if reverse {
		slices.Reverse(list)
	}
	return list
}
