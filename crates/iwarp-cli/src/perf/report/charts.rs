//! The kinds of pictures there are, as SVG.

use std::iter;
use std::ops::Range;

use plotters::chart::MeshStyle;
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// Okabe and Ito's palette without its yellow; readable on white and distinct in grey.
const COLOURS: [RGBColor; 7] = [
    BLACK,
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
];
const GREY: RGBColor = RGBColor(0x88, 0x88, 0x88);
const GRID: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);
const FONT: &str = "Helvetica, Arial, sans-serif";
const FONT_SIZE: i32 = 12;

const WIDTH: u32 = 640;
const LINE: i32 = 20;
/// Room for the names of ticks to the left, unless they are words.
const LEFT: u32 = 56;

type Picture<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// One series of [`lines`].
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<Point>,
}

/// A value, and where half of the rounds lie.
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// How the horizontal axis of [`lines`] is divided.
pub(super) enum Across {
    /// Sizes in octets.
    Sizes,
    /// Named places 0, 1, 2 and so on.
    Names(Vec<String>),
}

/// Lines over sizes, from zero; or over named places, with a logarithmic axis.
pub(super) fn lines(title: &str, label: &str, across: &Across, series: &[Series]) -> String {
    draw(340 + LINE * series.len() as i32, |picture| {
        let (upper, legend) = picture.split_vertically(340);
        let all = || series.iter().flat_map(|series| &series.points);
        let ends = || all().flat_map(|point| [point.low, point.high]);
        let (x, y) = match across {
            Across::Sizes => (Axis::log(2.0, all().map(|point| point.x)), Axis::from_zero(ends())),
            Across::Names(names) => (Axis::places(names.len()), Axis::log(10.0, ends())),
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
            mesh.x_desc("octets of a message");
        }
        mesh.x_label_formatter(&shown).y_label_formatter(&value);
        finish(mesh)?;
        for (number, series) in series.iter().enumerate() {
            let style = colour(number).stroke_width(2);
            let place = |point: &Point| (x.place(point.x), y.place(point.y));
            plot.draw_series(LineSeries::new(series.points.iter().map(place), style))?;
            for point in &series.points {
                let ends = [point.low, point.high].map(|end| (x.place(point.x), y.place(end)));
                plot.draw_series(iter::once(PathElement::new(ends, style)))?;
                mark(plot.plotting_area(), place(point), number)?;
            }
        }
        let names: Vec<&str> = series.iter().map(|series| series.name.as_str()).collect();
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
        let (least, most) = (ends().fold(1.0, f64::min), ends().fold(1.0, f64::max));
        let x = match most / least {
            far if far > 100.0 => Axis::log(10.0, ends()),
            far if far > 8.0 => Axis::log(2.0, ends()),
            _ => Axis::from_zero(ends()),
        };
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
            let row = row as f64;
            let ends = [estimate.low, estimate.high].map(|end| (x.place(end), row));
            plot.draw_series(iter::once(PathElement::new(ends, colour(1).stroke_width(2))))?;
            mark(plot.plotting_area(), (x.place(estimate.value), row), 1)?;
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
    draw(290 + LINE * names.len() as i32, |picture| {
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
                let bar = Rectangle::new(corners, colour(series).filled());
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

    /// How many ticks there may be. More than one for each power or place would lie between them.
    fn ticks(&self) -> usize {
        if self.base.is_none() && self.low == 0.0 { 7 } else { (self.high - self.low) as usize + 1 }
    }
}

fn draw(height: i32, draw: impl FnOnce(&Picture) -> Drawn) -> String {
    let mut svg = String::new();
    let picture = SVGBackend::with_string(&mut svg, (WIDTH, height as u32)).into_drawing_area();
    let drawn = picture.fill(&WHITE).map_err(Into::into).and_then(|()| draw(&picture));
    // A string takes all that is written to it, and no axis is empty.
    drawn.and_then(|()| Ok(picture.present()?)).expect("a picture is drawn");
    drop(picture);
    svg
}

/// What all plots have around them; `left` and `right` are free there.
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

/// A line for each series, with its mark.
fn entries(legend: &Picture, names: &[&str], stroke: bool) -> Drawn {
    let left = LEFT as i32 + 6;
    for (series, name) in names.iter().enumerate() {
        let y = LINE * series as i32 + LINE / 2;
        if stroke {
            let ends = [(left, y), (left + 28, y)];
            legend.draw(&PathElement::new(ends, colour(series).stroke_width(2)))?;
        }
        mark(legend, (left + 14, y), series)?;
        legend.draw_text(name, &text(HPos::Left), (left + 36, y))?;
    }
    Ok(())
}

/// A mark of a series: a disc, a square or a triangle.
fn mark<C: plotters::coord::CoordTranslate>(
    area: &DrawingArea<SVGBackend, C>,
    at: C::From,
    series: usize,
) -> Drawn
where
    C::From: Clone + 'static,
{
    let style = colour(series).filled();
    Ok(match series % 3 {
        0 => area.draw(&Circle::new(at, 4, style)),
        1 => area.draw(&(EmptyElement::at(at) + Rectangle::new([(-3, -3), (4, 4)], style))),
        _ => area.draw(&TriangleMarker::new(at, 5, style)),
    }?)
}

/// Beside a place, at the height of its middle.
fn text(side: HPos) -> TextStyle<'static> {
    (FONT, FONT_SIZE).into_text_style(&(0, 0)).pos(Pos::new(side, VPos::Center))
}

const fn colour(series: usize) -> RGBColor {
    COLOURS[series % COLOURS.len()]
}

/// A tick as people write it.
fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Octets, as a tick says them.
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
    fn ticks_are_written_short() {
        assert_eq!(number(2.50), "2.5");
        assert_eq!(number(10.0), "10");
        assert_eq!(short(65_536.0), "64K");
    }
}
