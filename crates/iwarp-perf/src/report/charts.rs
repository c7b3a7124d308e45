// SPDX-License-Identifier: MIT OR Apache-2.0

//! The kinds of pictures there are, as SVG.

use std::iter;
use std::ops::Range;

use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::series::DashedLineSeries;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::look::{GREY, GRID, Look, Mark, PAPER};

const FONT: &str = "Helvetica, Arial, sans-serif";
const FONT_SIZE: i32 = 14;

const WIDTH: u32 = 540;
const LINE: i32 = 22;
/// Room for the names of ticks to the left, unless they are words.
const LEFT: u32 = 56;

/// An axis is logarithmic if the largest value is so many times the least.
const SPREAD: f64 = 10.0;
/// Dashes of lines with CRC, in pixels.
const DASH: i32 = 6;
const GAP: i32 = 3;

type Picture<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// One series of [`lines`].
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

/// A value, and the range in which half of the rounds lie.
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// The division of the horizontal axis of [`lines`].
pub(super) enum Across {
    /// Sizes in bytes.
    Sizes,
    /// Named places 0, 1, 2 and so on.
    Names(Vec<String>),
}

/// Lines over sizes or over named places.
pub(super) fn lines(title: &str, label: &str, across: &Across, series: &[Series]) -> String {
    let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
    draw(340 + LINE * rows(names.len()), |picture| {
        let (upper, legend) = picture.split_vertically(340);
        let all = || series.iter().flat_map(|series| &series.points);
        let ends = || all().flat_map(|point| [point.low, point.high]);
        let (x, y) = match across {
            Across::Sizes => (Axis::log(2.0, all().map(|point| point.x)), Axis::fitting(ends())),
            Across::Names(names) => (Axis::places(names.len()), Axis::fitting(ends())),
        };
        let mut plot =
            frame(&upper, title, LEFT, 20).build_cartesian_2d(x.range(0.03), y.range(0.0))?;
        let shown = |place: &f64| match across {
            Across::Sizes => short(x.value(*place)),
            Across::Names(names) => names.get(*place as usize).cloned().unwrap_or_default(),
        };
        let value = |place: &f64| number(y.value(*place));
        let mut mesh = plot.configure_mesh();
        mesh.disable_x_mesh().y_desc(label).x_labels(x.ticks()).y_labels(y.ticks());
        if matches!(across, Across::Sizes) {
            mesh.x_desc("bytes of a message");
        }
        mesh.x_label_formatter(&shown).y_label_formatter(&value);
        finish(mesh)?;
        for series in series {
            let look = Look::of(&series.name);
            let style = look.colour.stroke_width(2);
            let place = |point: &Point| (x.place(point.x), y.place(point.y));
            let places = series.points.iter().map(place);
            match look.dashed {
                true => plot.draw_series(DashedLineSeries::new(places, DASH, GAP, style)).map(drop),
                false => plot.draw_series(LineSeries::new(places, style)).map(drop),
            }?;
            for point in &series.points {
                let ends = [point.low, point.high].map(|end| (x.place(point.x), y.place(end)));
                plot.draw_series(iter::once(PathElement::new(ends, style)))?;
                mark(plot.plotting_area(), place(point), look)?;
            }
        }
        entries(&legend, &names, true)
    })
}

/// One line of [`ratios`].
pub(super) struct Estimate {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// Ratios with their intervals, beside the line where both are equal.
pub(super) fn ratios(title: &str, label: &str, estimates: &[Estimate]) -> String {
    draw(90 + LINE * estimates.len() as i32, |picture| {
        let ends = || estimates.iter().flat_map(|e| [e.low, e.high]).chain([1.0]);
        let x = Axis::fitting(ends());
        // Some 0.52 of its size is the width of a letter.
        let longest = estimates.iter().map(|e| e.name.chars().count()).max().unwrap_or(0);
        let left = (longest as f64 * f64::from(FONT_SIZE) * 0.52) as u32 + 16;
        let y = Axis::places(estimates.len());
        let rows = y.range(0.0);
        let mut plot = frame(picture, title, left, 60)
            .build_cartesian_2d(x.range(0.0), rows.end..rows.start)?;
        let name = |row: &f64| match estimates.get(row.round() as usize) {
            Some(estimate) if row.fract() == 0.0 => estimate.name.clone(),
            _ => String::new(),
        };
        let value = |place: &f64| number(x.value(*place));
        let mut mesh = plot.configure_mesh();
        mesh.disable_y_mesh().x_desc(label).x_labels(x.ticks()).y_labels(y.ticks());
        mesh.x_label_formatter(&value).y_label_formatter(&name);
        finish(mesh)?;
        let even = [(x.place(1.0), rows.start), (x.place(1.0), rows.end)];
        plot.draw_series(iter::once(PathElement::new(even, GREY)))?;
        for (row, estimate) in estimates.iter().enumerate() {
            let (row, look) = (row as f64, Look::of(&estimate.name));
            let ends = [estimate.low, estimate.high].map(|end| (x.place(end), row));
            plot.draw_series(iter::once(PathElement::new(ends, look.colour.stroke_width(2))))?;
            mark(plot.plotting_area(), (x.place(estimate.value), row), look)?;
            let (_, down) = plot.backend_coord(&(0.0, row));
            let at = (WIDTH as i32 - 52, down);
            picture.draw_text(&format!("{:.2}", estimate.value), &text(HPos::Left), at)?;
        }
        Ok(())
    })
}

/// Bars in groups: a value for each series.
pub(super) fn bars(
    title: &str,
    label: &str,
    names: &[&str],
    groups: &[(String, Vec<f64>)],
) -> String {
    draw(290 + LINE * rows(names.len()), |picture| {
        let (upper, legend) = picture.split_vertically(290);
        let values = groups.iter().flat_map(|(_, values)| values.iter().copied());
        let (x, y) = (Axis::places(groups.len()), Axis::from_zero(values));
        let mut plot =
            frame(&upper, title, LEFT, 20).build_cartesian_2d(x.range(0.0), y.range(0.0))?;
        let name = |group: &f64| match groups.get(group.round() as usize) {
            Some((name, _)) if group.fract() == 0.0 => name.clone(),
            _ => String::new(),
        };
        let mut mesh = plot.configure_mesh();
        mesh.disable_x_mesh().y_desc(label).x_labels(x.ticks()).y_labels(y.ticks());
        mesh.x_label_formatter(&name).y_label_formatter(&|value| number(*value));
        finish(mesh)?;
        let width = 0.7 / names.len().max(1) as f64;
        for (group, (_, values)) in groups.iter().enumerate() {
            for (series, value) in values.iter().enumerate() {
                let left = group as f64 - 0.35 + series as f64 * width;
                let corners = [(left, 0.0), (left + width * 0.9, *value)];
                let look = Look::of(names[series]);
                let filled = if look.dashed { 0.55 } else { 1.0 };
                let bar = Rectangle::new(corners, look.colour.mix(filled).filled());
                plot.draw_series(iter::once(bar))?;
            }
        }
        entries(&legend, names, false)
    })
}

/// An axis, logarithmic if it has a base: places on it are exponents then.
struct Axis {
    low: f64,
    high: f64,
    base: Option<f64>,
}

impl Axis {
    /// From 0 to somewhat above the largest.
    fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(0.0, f64::max);
        Self { low: 0.0, high: if most > 0.0 { most * 1.04 } else { 1.0 }, base: None }
    }

    /// From 0 where that shows all of them, else by powers: of 2, or of 10 where they are far
    /// apart.
    fn fitting(values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        match values.clone().fold(0.0, f64::max) / least {
            far if !far.is_finite() || far < SPREAD => Self::from_zero(values),
            far if far < 128.0 => Self::log(2.0, values),
            _ => Self::log(10.0, values),
        }
    }

    /// Whole powers around all of them.
    fn log(base: f64, values: impl Iterator<Item = f64> + Clone) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
        let most = values.fold(least, f64::max);
        let low = least.log(base).floor();
        Self { low, high: most.log(base).ceil().max(low + 1.0), base: Some(base) }
    }

    /// Places 0, 1, 2 and so on, with half of one at each end.
    fn places(count: usize) -> Self {
        Self { low: -0.5, high: count.max(1) as f64 - 0.5, base: None }
    }

    fn place(&self, value: f64) -> f64 {
        self.base.map_or(value, |base| value.log(base))
    }

    fn value(&self, place: f64) -> f64 {
        self.base.map_or(place, |base| base.powf(place))
    }

    /// Its ends, with this part of it left free at each.
    fn range(&self, margin: f64) -> Range<f64> {
        let margin = margin * (self.high - self.low);
        self.low - margin..self.high + margin
    }

    /// The number of ticks that there may be. More than one for each power or place would lie
    /// between them.
    fn ticks(&self) -> usize {
        if self.base.is_none() && self.low == 0.0 { 7 } else { (self.high - self.low) as usize + 1 }
    }
}

fn draw(height: i32, draw: impl FnOnce(&Picture) -> Drawn) -> String {
    let mut svg = String::new();
    let picture = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
    let drawn = picture.fill(&PAPER).map_err(Into::into).and_then(|()| draw(&picture));
    // A string takes all that is written to it, and no axis is empty.
    drawn.and_then(|()| Ok(picture.present()?)).expect("a picture is drawn");
    drop(picture);
    svg
}

/// The frame that all plots have around them; `left` and `right` are free there.
fn frame<'a, 'b>(
    picture: &'a Picture<'b>,
    title: &str,
    left: u32,
    right: u32,
) -> ChartBuilder<'a, 'b, SVGBackend<'b>> {
    let mut chart = ChartBuilder::on(picture);
    chart.caption(title, (FONT, FONT_SIZE + 2).into_font().style(FontStyle::Bold));
    chart.margin_top(8).margin_left(6).margin_right(right);
    chart.x_label_area_size(44).y_label_area_size(left);
    chart
}

fn finish(mut mesh: MeshStyle<'_, '_, RangedCoordf64, RangedCoordf64, SVGBackend<'_>>) -> Drawn {
    mesh.light_line_style(TRANSPARENT).bold_line_style(GRID).axis_style(GREY);
    mesh.label_style((FONT, FONT_SIZE)).axis_desc_style((FONT, FONT_SIZE));
    Ok(mesh.draw()?)
}

/// Lines of a legend in two columns.
const fn rows(names: usize) -> i32 {
    names.div_ceil(2) as i32
}

/// An entry for each series, with its mark.
fn entries(legend: &Picture, names: &[&str], stroke: bool) -> Drawn {
    for (series, name) in names.iter().enumerate() {
        let (column, row) = (series as i32 / rows(names.len()), series as i32 % rows(names.len()));
        let left = 14 + column * (WIDTH as i32 / 2);
        let y = LINE * row + LINE / 2;
        let look = Look::of(name);
        let ends = [(left, y), (left + 28, y)];
        let style = look.colour.stroke_width(2);
        match (stroke, look.dashed) {
            (true, true) => {
                legend.draw(&DashedPathElement::new(ends, DASH, GAP, style))?;
            }
            (true, false) => legend.draw(&PathElement::new(ends, style))?,
            (false, _) => {}
        }
        match stroke {
            true => mark(legend, (left + 14, y), look)?,
            false => {
                let filled = look.colour.mix(if look.dashed { 0.55 } else { 1.0 }).filled();
                legend.draw(&Rectangle::new([(left + 8, y - 6), (left + 22, y + 6)], filled))?;
            }
        }
        legend.draw_text(name, &text(HPos::Left), (left + 36, y))?;
    }
    Ok(())
}

/// The mark of a line at a place.
fn mark<C: plotters::coord::CoordTranslate>(
    area: &DrawingArea<SVGBackend, C>,
    at: C::From,
    look: Look,
) -> Drawn
where
    C::From: Clone + 'static,
{
    let style = look.colour.filled();
    Ok(match look.mark {
        Mark::Disc => area.draw(&Circle::new(at, 4, style)),
        Mark::Square => {
            area.draw(&(EmptyElement::at(at) + Rectangle::new([(-3, -3), (4, 4)], style)))
        }
        Mark::Triangle => area.draw(&TriangleMarker::new(at, 5, style)),
        Mark::Ring => {
            area.draw(&Circle::new(at.clone(), 4, PAPER.filled()))?;
            area.draw(&Circle::new(at, 4, look.colour.stroke_width(2)))
        }
    }?)
}

/// Beside a place, at the height of its middle.
fn text(side: HPos) -> TextStyle<'static> {
    (FONT, FONT_SIZE).into_text_style(&(0, 0)).pos(Pos::new(side, VPos::Center))
}

/// A tick as people write it.
fn number(value: f64) -> String {
    let (value, unit) = match value {
        value if value >= 1e6 => (value / 1e6, "M"),
        value if value >= 1e4 => (value / 1e3, "K"),
        value => (value, ""),
    };
    let text = format!("{value:.4}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Bytes, as a tick says them.
fn short(octets: f64) -> String {
    match octets.round() as u64 {
        n if n >= 1 << 20 => format!("{}M", n >> 20),
        n if n >= 1 << 10 => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, values: &[f64]) -> Series {
        let point = |(n, y): (usize, &f64)| Point {
            x: f64::from(4 << (2 * n)),
            y: *y,
            low: y * 0.9,
            high: y * 1.1,
        };
        Series { name: name.to_owned(), points: values.iter().enumerate().map(point).collect() }
    }

    /// All kinds, of what is extreme as well; into files where a person wants to see them.
    #[test]
    fn every_kind_of_picture_is_drawn() {
        let many =
            [series("TCP & all", &[0.02, 0.1, 0.4, 1.2, 2.4]), series("Write, CRC", &[0.01])];
        let names = Across::Names(["50 %", "all"].map(str::to_owned).to_vec());
        let estimate = |name: &str, value: f64| Estimate {
            name: name.to_owned(),
            value,
            low: value * 0.9,
            high: value * 1.2,
        };
        let near = [estimate("Write", 1.1), estimate("Send, CRC, markers", 0.8)];
        let groups = [("sender".to_owned(), vec![35.0, 50.0]), ("receiver".to_owned(), vec![90.0])];
        let pictures = [
            lines("Bandwidth", "GB/s", &Across::Sizes, &many),
            lines("One", "GB/s", &Across::Sizes, &many[1..]),
            lines("Zero", "GB/s", &Across::Sizes, &[series("none", &[0.0])]),
            lines(
                "Within",
                "µs",
                &names,
                &[Series { name: "a".into(), points: many[0].points_of(2) }],
            ),
            ratios("Near", "ratio", &near),
            ratios("Far", "ratio", &[estimate("far", 0.001), estimate("one", 1.0)]),
            bars("Load", "%", &["TCP", "Write"], &groups),
        ];
        for (number, svg) in pictures.iter().enumerate() {
            assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{number}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{number}: {svg}");
            if let Some(dir) = std::env::var_os("IWARP_PICTURES") {
                let file = std::path::Path::new(&dir).join(format!("{number}.svg"));
                std::fs::write(file, svg).unwrap();
            }
        }
        assert!(pictures[0].contains("TCP &amp; all"), "{}", pictures[0]);
    }

    impl Series {
        fn points_of(&self, count: usize) -> Vec<Point> {
            let point = |(n, p): (usize, &Point)| Point { x: n as f64, ..*p };
            self.points.iter().take(count).enumerate().map(point).collect()
        }
    }

    #[test]
    fn an_axis_is_logarithmic_where_values_differ_by_tens() {
        let base = |values: &[f64]| Axis::fitting(values.iter().copied()).base;
        assert_eq!(base(&[1.0, 9.0]), None);
        assert_eq!(base(&[0.5, 9.0]), Some(2.0));
        assert_eq!(base(&[0.5, 900.0]), Some(10.0));
        assert_eq!(base(&[0.0, 9.0]), None);
        assert_eq!(base(&[0.0]), None);
    }

    #[test]
    fn ticks_are_written_short() {
        assert_eq!(number(2.50), "2.5");
        assert_eq!(number(10.0), "10");
        assert_eq!([1e3, 1e4, 1e6].map(number), ["1000", "10K", "1M"]);
        assert_eq!(short(65_536.0), "64K");
    }
}
