// Package drawing has what the plots of the lab and of the cosched command have in common.
package drawing

import (
	"bytes"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Palette has colours that people with any kind of colour vision can tell apart: Okabe and
// Ito, 2008.
var Palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xe6, 0x9f, 0x00, 0xff}, color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x56, 0xb4, 0xe9, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	color.RGBA{0x00, 0x00, 0x00, 0xff}, color.RGBA{0xf0, 0xe4, 0x42, 0xff},
}

// Save writes plots, one below the other, into a file. Its extension says the format: .png
// or .svg.
func Save(plots [][]*plot.Plot, width, height vg.Length, file string) error {
	format := strings.TrimPrefix(filepath.Ext(file), ".")
	c, err := draw.NewFormattedCanvas(width, height, format)
	if err != nil {
		return err
	}
	for i, tile := range plot.Align(plots, draw.Tiles{Rows: len(plots), Cols: 1}, draw.New(c)) {
		plots[i][0].Draw(tile[0])
	}
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
