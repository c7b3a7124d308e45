//! The kinds of pictures there are.

use super::svg::{Anchor, Canvas, Scale, number, width};

const WIDTH: f64 = 640.0;
const TOP: f64 = 34.0;
const LINE: f64 = 20.0;

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
    let legend = series.len() as f64 * LINE;
    let (left, right, plot) = (70.0, WIDTH - 20.0, 260.0);
    let bottom = TOP + plot;
    let mut canvas = Canvas::new(WIDTH, bottom + 56.0 + legend);
    canvas.title(title);
    let all = || series.iter().flat_map(|series| &series.points);
    let (y, x) = match across {
        Across::Sizes => (
            Scale::from_zero(all().map(|point| point.high)),
            Scale::tight(all().map(|point| point.x), 4.0),
        ),
        Across::Names(names) => (
            Scale::log(all().flat_map(|point| [point.low, point.high]), 10.0),
            Scale::Linear { low: 0.0, high: (names.len() - 1).max(1) as f64 },
        ),
    };
    let down = |value: f64| bottom - y.place(value) * plot;
    let along = |value: f64| left + 14.0 + x.place(value) * (right - left - 28.0);
    for tick in y.ticks() {
        canvas.grid((left, down(tick)), (right, down(tick)));
        canvas.text(left - 6.0, down(tick) + 4.0, Anchor::End, &number(tick));
    }
    canvas.axis((left, bottom), (right, bottom));
    canvas.axis((left, TOP), (left, bottom));
    canvas.upright(16.0, TOP + plot / 2.0, label);
    let ticks: Vec<(f64, String)> = match across {
        Across::Sizes => x.ticks().into_iter().map(|tick| (tick, short(tick))).collect(),
        Across::Names(names) => {
            names.iter().enumerate().map(|(n, name)| (n as f64, name.clone())).collect()
        }
    };
    for (tick, name) in ticks {
        canvas.axis((along(tick), bottom), (along(tick), bottom + 4.0));
        canvas.text(along(tick), bottom + 18.0, Anchor::Middle, &name);
    }
    if matches!(across, Across::Sizes) {
        let middle = f64::midpoint(left, right);
        canvas.text(middle, bottom + 36.0, Anchor::Middle, "octets of a message");
    }
    for (number, series) in series.iter().enumerate() {
        let places: Vec<(f64, f64)> =
            series.points.iter().map(|point| (along(point.x), down(point.y))).collect();
        canvas.curve(number, &places);
        for (point, (x, y)) in series.points.iter().zip(places) {
            canvas.whisker(number, (x, down(point.low)), (x, down(point.high)));
            canvas.mark(number, x, y);
        }
        let line = bottom + 52.0 + number as f64 * LINE;
        canvas.curve(number, &[(left, line), (left + 28.0, line)]);
        canvas.mark(number, left + 14.0, line);
        canvas.text(left + 36.0, line + 4.0, Anchor::Start, &series.name);
    }
    canvas.finish()
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
    let widest = estimates.iter().map(|estimate| width(&estimate.name)).fold(0.0, f64::max);
    let (left, right) = (widest + 24.0, WIDTH - 60.0);
    let bottom = TOP + estimates.len() as f64 * LINE + 8.0;
    let mut canvas = Canvas::new(WIDTH, bottom + 44.0);
    canvas.title(title);
    let ends = || estimates.iter().flat_map(|e| [e.low, e.high]).chain([1.0]);
    let (least, most) = (ends().fold(1.0, f64::min), ends().fold(1.0, f64::max));
    let scale = if most / least > 8.0 {
        Scale::log(ends(), if most / least > 100.0 { 10.0 } else { 2.0 })
    } else {
        Scale::from_zero(ends())
    };
    let along = |value: f64| left + scale.place(value) * (right - left);
    for tick in scale.ticks() {
        canvas.grid((along(tick), TOP), (along(tick), bottom));
        canvas.text(along(tick), bottom + 16.0, Anchor::Middle, &number(tick));
    }
    canvas.axis((along(1.0), TOP), (along(1.0), bottom));
    canvas.text(f64::midpoint(left, right), bottom + 34.0, Anchor::Middle, label);
    for (line, estimate) in estimates.iter().enumerate() {
        let y = TOP + (line as f64 + 0.6) * LINE;
        canvas.text(left - 10.0, y + 4.0, Anchor::End, &estimate.name);
        canvas.whisker(1, (along(estimate.low), y), (along(estimate.high), y));
        canvas.mark(1, along(estimate.value), y);
        let text = format!("{:.2}", estimate.value);
        canvas.text(right + 8.0, y + 4.0, Anchor::Start, &text);
    }
    canvas.finish()
}

/// Bars in groups: a value for each series.
pub(super) fn bars(
    title: &str,
    label: &str,
    names: &[&str],
    groups: &[(String, Vec<f64>)],
) -> String {
    let (left, right, plot) = (70.0, WIDTH - 20.0, 220.0);
    let bottom = TOP + plot;
    let mut canvas = Canvas::new(WIDTH, bottom + 34.0 + names.len() as f64 * LINE);
    canvas.title(title);
    let scale = Scale::from_zero(groups.iter().flat_map(|(_, values)| values.iter().copied()));
    let down = |value: f64| bottom - scale.place(value) * plot;
    for tick in scale.ticks() {
        canvas.grid((left, down(tick)), (right, down(tick)));
        canvas.text(left - 6.0, down(tick) + 4.0, Anchor::End, &number(tick));
    }
    canvas.upright(16.0, TOP + plot / 2.0, label);
    let group_width = (right - left) / groups.len().max(1) as f64;
    for (place, (name, values)) in groups.iter().enumerate() {
        let start = left + place as f64 * group_width;
        canvas.text(start + group_width / 2.0, bottom + 18.0, Anchor::Middle, name);
        let width = group_width * 0.7 / names.len().max(1) as f64;
        for (series, value) in values.iter().enumerate() {
            let x = start + group_width * 0.15 + series as f64 * width;
            canvas.bar(series, (x, down(*value)), (width * 0.9, bottom - down(*value)));
        }
    }
    canvas.axis((left, bottom), (right, bottom));
    for (series, name) in names.iter().enumerate() {
        let y = bottom + 36.0 + series as f64 * LINE;
        canvas.mark(series, left + 8.0, y);
        canvas.text(left + 20.0, y + 4.0, Anchor::Start, name);
    }
    canvas.finish()
}

/// Octets, as a tick says them.
fn short(octets: f64) -> String {
    match octets as u64 {
        n if n >= 1 << 20 => format!("{}M", n >> 20),
        n if n >= 1 << 10 => format!("{}K", n >> 10),
        n => n.to_string(),
    }
}
