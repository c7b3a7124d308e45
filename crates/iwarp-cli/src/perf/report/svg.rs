//! Pictures: just enough SVG for axes, lines and bars, in colours that everybody can tell apart.

use std::fmt::Write;

/// Okabe and Ito's palette without its yellow; readable on white and distinct in grey.
const COLOURS: [&str; 7] =
    ["#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00"];
const GREY: &str = "#888888";
const GRID: &str = "#dddddd";
const FONT: f64 = 12.0;

/// The colour of a series.
pub(super) const fn colour(series: usize) -> &'static str {
    COLOURS[series % COLOURS.len()]
}

/// Octets of a text that may stand in XML.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// How wide a text is, about.
pub(super) fn width(text: &str) -> f64 {
    text.chars().count() as f64 * FONT * 0.56
}

/// Where a text is anchored.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture that is being drawn. Units are CSS pixels, y goes down.
pub(super) struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

impl Canvas {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        self.body.write_fmt(element).expect("a string takes everything");
        self.body.push('\n');
    }

    pub(super) fn text(&mut self, x: f64, y: f64, anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escape(text);
        self.put(format_args!("<text x='{x:.1}' y='{y:.1}' text-anchor='{anchor}'>{text}</text>"));
    }

    pub(super) fn title(&mut self, text: &str) {
        let (x, text) = (self.width / 2.0, escape(text));
        self.put(format_args!(
            "<text x='{x:.1}' y='18' text-anchor='middle' font-weight='bold'>{text}</text>"
        ));
    }

    /// A text that is read from below.
    pub(super) fn upright(&mut self, x: f64, y: f64, text: &str) {
        let text = escape(text);
        self.put(format_args!(
            "<text transform='translate({x:.1},{y:.1}) rotate(-90)' \
             text-anchor='middle'>{text}</text>"
        ));
    }

    fn stroke(&mut self, from: (f64, f64), to: (f64, f64), colour: &str, width: f64) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.put(format_args!(
            "<line x1='{x1:.1}' y1='{y1:.1}' x2='{x2:.1}' y2='{y2:.1}' stroke='{colour}' \
             stroke-width='{width}'/>"
        ));
    }

    pub(super) fn grid(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.stroke(from, to, GRID, 1.0);
    }

    pub(super) fn axis(&mut self, from: (f64, f64), to: (f64, f64)) {
        self.stroke(from, to, GREY, 1.0);
    }

    /// A line of a series; dashed lines tell the even from the odd in print.
    pub(super) fn curve(&mut self, series: usize, points: &[(f64, f64)]) {
        let place = |(x, y): &(f64, f64)| format!("{x:.1},{y:.1}");
        let places = points.iter().map(place).collect::<Vec<_>>().join(" ");
        let dash = if series >= COLOURS.len() { " stroke-dasharray='5 3'" } else { "" };
        let colour = colour(series);
        self.put(format_args!(
            "<polyline points='{places}' fill='none' stroke='{colour}' stroke-width='1.8'{dash}/>"
        ));
    }

    /// How far something can be trusted.
    pub(super) fn whisker(&mut self, series: usize, from: (f64, f64), to: (f64, f64)) {
        self.stroke(from, to, colour(series), 1.4);
    }

    /// A mark of a series: a disc, a square or a triangle.
    pub(super) fn mark(&mut self, series: usize, x: f64, y: f64) {
        let colour = colour(series);
        match series % 3 {
            0 => {
                self.put(format_args!("<circle cx='{x:.1}' cy='{y:.1}' r='3.6' fill='{colour}'/>"))
            }
            1 => self.bar(series, (x - 3.3, y - 3.3), (6.6, 6.6)),
            _ => self.put(format_args!(
                "<path d='M{x:.1} {:.1} l4.4 7.6 h-8.8 z' fill='{colour}'/>",
                y - 5.0
            )),
        }
    }

    pub(super) fn bar(&mut self, series: usize, at: (f64, f64), extent: (f64, f64)) {
        let ((x, y), (width, height), colour) = (at, extent, colour(series));
        self.put(format_args!(
            "<rect x='{x:.1}' y='{y:.1}' width='{width:.1}' height='{height:.1}' fill='{colour}'/>"
        ));
    }

    /// The picture, complete.
    pub(super) fn finish(self) -> String {
        let Self { width, height, body } = self;
        format!(
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width:.0} {height:.0}' \
             width='{width:.0}' height='{height:.0}' font-family='Helvetica, Arial, sans-serif' \
             font-size='{FONT}'>\n<rect width='100%' height='100%' fill='#ffffff'/>\n{body}</svg>\n"
        )
    }
}

/// A scale of numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    Linear {
        low: f64,
        high: f64,
    },
    /// Powers, of this base where ticks are.
    Log {
        low: f64,
        high: f64,
        base: f64,
    },
}

impl Scale {
    /// From 0 to somewhat above the largest.
    pub(super) fn from_zero(values: impl Iterator<Item = f64>) -> Self {
        let most = values.fold(f64::MIN_POSITIVE, f64::max);
        let step = step(most);
        Self::Linear { low: 0.0, high: (most / step).ceil() * step }
    }

    /// All of them, with ticks at powers of `base`.
    pub(super) fn log(values: impl Iterator<Item = f64> + Clone, base: f64) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::MIN_POSITIVE, f64::max);
        let (low, high) = (least.log(base).floor(), most.log(base).ceil());
        Self::Log { low: base.powf(low), high: base.powf(high.max(low + 1.0)), base }
    }

    /// The same with its ends where the values are.
    pub(super) fn tight(values: impl Iterator<Item = f64> + Clone, base: f64) -> Self {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(f64::MIN_POSITIVE, f64::max);
        Self::Log { low: least, high: if most > least { most } else { least * base }, base }
    }

    /// Where a value is, from 0 to 1.
    pub(super) fn place(&self, value: f64) -> f64 {
        match *self {
            Self::Linear { low, high } => (value - low) / (high - low),
            Self::Log { low, high, .. } => (value / low).ln() / (high / low).ln(),
        }
    }

    /// Values that have a tick.
    pub(super) fn ticks(&self) -> Vec<f64> {
        match *self {
            Self::Linear { low, high } => {
                let step = step(high - low);
                (0..)
                    .map(|n| low + step * f64::from(n))
                    .take_while(|v| *v < high + step / 2.0)
                    .collect()
            }
            Self::Log { low, high, base } => {
                let (first, last) = (low.log(base), high.log(base));
                let powers = first.round() as i32..=last.round() as i32;
                let stride = (powers.clone().count() / 12 + 1) as i32;
                powers.step_by(stride as usize).map(|power| base.powi(power)).collect()
            }
        }
    }
}

/// A round number of which some five make up `extent`.
fn step(extent: f64) -> f64 {
    let rough = extent / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power)
}

/// A tick as people write it.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        for most in [0.003, 0.9, 1.0, 7.3, 12.0, 99.0, 12_345.0] {
            let scale = Scale::from_zero([most].into_iter());
            let ticks = scale.ticks();
            assert!((3..=8).contains(&ticks.len()), "{most}: {ticks:?}");
            let last = *ticks.last().unwrap();
            assert!(last >= most * 0.999 && last < 2.0 * most, "{most}: {ticks:?}");
            assert!((scale.place(last) - 1.0).abs() < 1e-9);
        }
        let scale = Scale::tight([4.0, 65_536.0].into_iter(), 4.0);
        assert_eq!(scale.ticks().first(), Some(&4.0));
        assert_eq!(scale.ticks().last(), Some(&65_536.0));
        assert_eq!(number(2.50), "2.5");
        assert_eq!(number(10.0), "10");
    }

    #[test]
    fn what_is_written_is_xml() {
        let mut canvas = Canvas::new(100.0, 50.0);
        canvas.title("a < b & \"c\"");
        let text = canvas.finish();
        assert!(text.contains("a &lt; b &amp; &quot;c&quot;"), "{text}");
    }
}
