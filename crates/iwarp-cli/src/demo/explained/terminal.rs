// SPDX-License-Identifier: MIT OR Apache-2.0

//! The story as text, no wider than the terminal.

use std::fmt::Write;

use console::{Style, Term, measure_text_width, style};

use super::fields::Layer;
use super::frames::Frame;
use super::story::{Chapter, Happened, Part, Side, Story, Thing};
use super::{Deed, deeds};

/// Columns where standard output is no terminal.
const WIDTH: usize = 100;
/// Columns that need not be there: below, lines are as long as they are.
const LEAST: usize = 40;
/// Columns of the time and of the side.
const MARGIN: usize = 12;

/// The story, each line with its end.
pub(crate) fn tell(story: &Story) -> String {
    let width = Term::stdout().size_checked().map_or(WIDTH, |(_, columns)| columns.into());
    let mut teller = Teller { text: String::new(), width: width.max(LEAST) };
    for chapter in &story.chapters {
        teller.chapter(chapter);
    }
    teller.text
}

struct Teller {
    text: String,
    width: usize,
}

impl Teller {
    fn chapter(&mut self, chapter: &Chapter) {
        let rule = "─".repeat(self.width.saturating_sub(chapter.title.chars().count() + 1).min(60));
        self.line(&format!("\n{} {}", style(&chapter.title).bold(), style(rule).dim()));
        self.wrapped("", 0, &chapter.lead, &Style::new());
        for part in &chapter.parts {
            match &part.aside {
                None => part.happened.iter().for_each(|happened| self.happened(happened)),
                Some(why) => self.aside(why, part),
            }
        }
        for outcome in &chapter.outcomes {
            self.wrapped("  = ", 4, outcome, &Style::new().green());
        }
    }

    /// A part that serves another purpose is counted, not shown.
    fn aside(&mut self, why: &str, part: &Part) {
        let frames = part.happened.iter().filter_map(|happened| match &happened.what {
            Thing::Frame(frame, _) => Some(frame.bytes.len()),
            _ => None,
        });
        let (count, bytes) = frames.fold((0, 0), |(count, sum), len| (count + 1, sum + len));
        let bytes = deeds::bytes(bytes as u64);
        let text = format!("{why} ({count} frames, {bytes}; iwarp demo --html shows them)");
        self.wrapped("  · ", 4, &text, &Style::new().dim());
    }

    fn happened(&mut self, happened: &Happened) {
        let time = style(format!("{:>9}", time(happened.at))).dim();
        let side = happened.side;
        match &happened.what {
            Thing::Deed(deed) => self.deed(&format!("{time}  {}", name(side)), deed),
            Thing::Frame(frame, took) => {
                let head = format!("{time}  {}", arrow(side));
                self.frame(&head, frame, *took);
            }
            Thing::End => {
                let head = format!("{time}  {}", arrow(side));
                self.line(&format!("{head}  end of the stream (TCP FIN)"));
            }
        }
    }

    fn deed(&mut self, head: &str, deed: &Deed) {
        let verb = style(format!("{:<11}", deed.verb)).bold();
        self.line(&format!("{head}  {verb} {}", deed.about));
        let fields = deed.fields.iter().map(|(name, value)| format!("{name} {value}"));
        let fields: Vec<String> = std::iter::once(deed.in_c.clone()).chain(fields).collect();
        self.fields(&" ".repeat(MARGIN + 7), MARGIN + 7, &fields);
    }

    fn frame(&mut self, head: &str, frame: &Frame, took: Option<u64>) {
        let came = took.map_or("not seen to arrive".to_owned(), |took| {
            format!("arrived after {}", time(took).trim_start_matches('+'))
        });
        let bytes = deeds::bytes(frame.bytes.len() as u64);
        let title = style(&frame.name).bold();
        let about = format!("{bytes}, {came}");
        self.wrapped(&format!("{head}  {title}, "), MARGIN, &about, &Style::new());
        if let Some(note) = &frame.note {
            self.wrapped(&" ".repeat(MARGIN), MARGIN, note, &Style::new());
        }
        for layer in Layer::ALL {
            let fields = frame.fields.iter().filter(|field| field.layer == layer);
            let fields: Vec<String> = fields
                .map(|field| match layer {
                    Layer::Payload => field.value.clone(),
                    _ => format!("{} {}", field.name, field.value),
                })
                .collect();
            if !fields.is_empty() {
                let label = format!("{}{:<9}", " ".repeat(MARGIN), layer.name());
                self.fields(&label, MARGIN + 9, &fields);
            }
        }
    }

    /// Words behind `label`, whose further lines begin `indent` columns from the left.
    fn wrapped(&mut self, label: &str, indent: usize, text: &str, looks: &Style) {
        self.filled(label, indent, text.split(' '), looks);
    }

    /// Fields likewise. A line ends behind a field, unless that has too many words for one.
    fn fields(&mut self, label: &str, indent: usize, fields: &[String]) {
        let count = fields.len();
        let pieces = fields.iter().enumerate().flat_map(|(number, field)| {
            let field = format!("{field}{}", if number + 1 < count { "," } else { "" });
            match indent + measure_text_width(&field) <= self.width {
                true => vec![field],
                false => field.split(' ').map(str::to_owned).collect(),
            }
        });
        let pieces: Vec<String> = pieces.collect();
        if !pieces.is_empty() {
            self.filled(label, indent, pieces.iter().map(String::as_str), &Style::new().dim());
        }
    }

    fn filled<'a>(
        &mut self,
        label: &str,
        indent: usize,
        pieces: impl Iterator<Item = &'a str>,
        looks: &Style,
    ) {
        let mut line = String::new();
        let mut head = label.to_owned();
        for piece in pieces {
            let long = measure_text_width(&line) + 1 + measure_text_width(piece);
            if !line.is_empty() && measure_text_width(&head) + long > self.width {
                self.line(&format!("{head}{}", looks.apply_to(&line)));
                (line, head) = (String::new(), " ".repeat(indent));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(piece);
        }
        self.line(&format!("{head}{}", looks.apply_to(&line)));
    }

    fn line(&mut self, line: &str) {
        // A string takes all that is written to it.
        let _ = writeln!(self.text, "{}", line.trim_end());
    }
}

/// Nanoseconds as people read them.
pub(super) fn time(nanoseconds: u64) -> String {
    match nanoseconds as f64 / 1e3 {
        us if us < 100.0 => format!("{us:.1} µs"),
        us if us < 10_000.0 => format!("{us:.0} µs"),
        us => format!("{:.1} ms", us / 1e3),
    }
}

fn looks(side: Side) -> Style {
    match side {
        Side::Client => Style::new().cyan(),
        Side::Server => Style::new().yellow(),
    }
}

fn name(side: Side) -> String {
    looks(side).apply_to(side.name()).to_string()
}

/// From one side to the other.
fn arrow(from: Side) -> String {
    let (left, right) = (name(Side::Client), name(Side::Server));
    let line = if from == Side::Client { "──▶" } else { "◀──" };
    format!("{left} {} {right}", looks(from).apply_to(line))
}
