// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tables, on a terminal and elsewhere.

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use console::{Term, measure_text_width};
use iwarp_kit::lines;
use iwarp_kit::size;

use super::compare::Earlier;
use super::{About, CaseReport, Report, SubjectReport, Versus, overview};
use crate::plan::Measure;
use crate::task::{Places, Transport};

/// Columns between those of a table on a terminal.
const GAP: usize = 2;

/// A table whose first column holds names.
pub(crate) struct Sheet {
    pub(crate) headline: String,
    pub(crate) header: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// Prints what comes behind the cases.
pub(crate) fn finish(report: &Report, earlier: Option<&Earlier>) -> Result<()> {
    let compared = earlier.map(|earlier| earlier.compare(report)).transpose()?;
    for sheet in report.more_sheets().iter().chain(&compared) {
        sheet.print()?;
    }
    let mut text = format!("\n{}\n", circumstances(&report.run).join("\n"));
    if let Some(sentence) = overview::sentence(report) {
        text.push_str(&format!("\n{}\n", console::style(sentence).bold()));
    }
    if let Some(warning) = &report.warning {
        text.push_str(&format!("\n{} {warning}\n", console::style("warning:").yellow().bold()));
    }
    out(&text)
}

/// All tables of a run.
pub(crate) fn sheets(report: &Report) -> Vec<Sheet> {
    report.cases.iter().map(sheet).chain(report.more_sheets()).collect()
}

/// Prints this.
pub(crate) fn out(text: &str) -> Result<()> {
    lines::out(format_args!("{text}"));
    Ok(())
}

impl Sheet {
    pub(crate) fn print(&self) -> Result<()> {
        let mut text = format!("\n{}\n", console::style(&self.headline).bold());
        let width = Term::stdout().size_checked().map(|(_, columns)| usize::from(columns));
        for columns in self.blocks(width.unwrap_or(usize::MAX)) {
            for line in self.block(&columns).lines() {
                text.push(' ');
                text.push_str(line.trim_end());
                text.push('\n');
            }
        }
        out(&text)
    }

    /// The columns of each table beneath the other, so that none is wider than `width` if that can
    /// be. Names begin each of them.
    fn blocks(&self, width: usize) -> Vec<Vec<usize>> {
        let cell_width = |cell: &String| measure_text_width(cell);
        let widths: Vec<usize> = (0..self.header.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column));
                let cells = cells.chain(&self.header[column..=column]);
                cells.map(cell_width).max().unwrap_or(0) + GAP
            })
            .collect();
        let (mut blocks, mut used) = (vec![vec![0]], 0);
        for (column, wide) in widths.iter().enumerate().skip(1) {
            let names = 1 + widths[0];
            if blocks.last().is_some_and(|block| block.len() > 1) && names + used + wide > width {
                blocks.push(vec![0]);
                used = 0;
            }
            used += wide;
            blocks.last_mut().expect("there is one").push(column);
        }
        blocks
    }

    fn block(&self, columns: &[usize]) -> Table {
        let chosen = |cells: &[String]| -> Vec<String> {
            columns.iter().map(|&column| cells.get(column).cloned().unwrap_or_default()).collect()
        };
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(chosen(&self.header));
        for row in &self.rows {
            table.add_row(chosen(row));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

/// The circumstances of the measurements.
pub(crate) fn circumstances(run: &About) -> Vec<String> {
    let list = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let Places { client, server, .. } = &run.places;
    let cpus = if client.is_empty() {
        format!("CPUs {}", list(&run.cpus))
    } else {
        let threads = if run.places.threads { "" } else { " (library threads: any)" };
        format!("client on CPU {}, server on CPU {}{threads}", list(client), list(server))
    };
    let congestion = match &run.congestion {
        Some([here, there]) if here == there => here.clone(),
        Some([here, there]) => format!("{here} here, {there} there"),
        None => "not known".to_owned(),
    };
    let mut lines = vec![
        format!("{}; Linux {}; {cpus}", run.processor, run.kernel),
        format!("server: {}", run.server),
        format!("all sockets: congestion control {congestion}, {}", run.sockets),
    ];
    lines.extend(run.local_path.as_ref().map(|way| match way.split_once(": ") {
        None if way == "off" => "RDMA: over TCP".to_owned(),
        None => "RDMA: moved from TCP to shared memory (IWARP_LOCAL=off: over TCP)".to_owned(),
        Some((_, some)) => format!("RDMA: {some} connections moved from TCP to shared memory"),
    }));
    lines.extend(run.left_out.clone());
    lines.extend([
        format!(
            "{} round{} of {:.0} ms each, one line after the other; the bytes of every round were \
             verified",
            run.rounds,
            if run.rounds == 1 { "" } else { "s" },
            run.round_seconds * 1e3
        ),
        "ratio: of medians; quartiles: of the ratio round by round; 95 %: interval of the ratio of \
         medians (bootstrap)"
            .to_owned(),
    ]);
    lines
}

/// The columns that not every case has.
struct Columns<'a> {
    timed: bool,
    /// Other baselines than the one that counts, and than yardsticks.
    also: bool,
    /// The yardsticks with which lines are compared.
    yardsticks: Vec<&'a str>,
    /// Lines were asked to take different ways within the host.
    ways: bool,
}

impl<'a> Columns<'a> {
    fn of(case: &'a CaseReport) -> Self {
        let subjects = || case.subjects.iter();
        let also = || subjects().flat_map(|subject| &subject.also_versus);
        let is_yardstick =
            |subject: &&SubjectReport| matches!(subject.transport, Transport::Yardstick(_));
        let yardsticks: Vec<&str> = subjects()
            .filter(is_yardstick)
            .map(|subject| subject.name.as_str())
            .filter(|name| also().any(|versus| versus.name == *name))
            .collect();
        Self {
            timed: subjects().any(|subject| subject.percentiles.is_some()),
            also: also().any(|versus| !yardsticks.contains(&versus.name.as_str())),
            yardsticks,
            ways: subjects().any(|subject| subject.transport.way().is_some()),
        }
    }
}

/// The table of a case.
pub(crate) fn sheet(case: &CaseReport) -> Sheet {
    let tcp = |subject: &SubjectReport| {
        subject.versus.as_ref().is_none_or(|versus| versus.name.starts_with("TCP"))
    };
    let ratio = if case.subjects.iter().all(tcp) { "x TCP" } else { "ratio" };
    let columns = Columns::of(case);
    let mut header = vec!["", "median", ratio, "quartiles", "95 %"];
    if columns.also {
        header.push("x other TCP");
    }
    let yardsticks: Vec<_> = columns.yardsticks.iter().map(|name| format!("x {name}")).collect();
    header.extend(yardsticks.iter().map(String::as_str));
    if columns.ways {
        header.push("way");
    }
    if columns.timed {
        header.push("p50 ratio");
    }
    header.extend(match case.measure {
        Measure::Bandwidth => ["client s/GiB", "server s/GiB"],
        _ => ["client CPU µs", "server CPU µs"],
    });
    if columns.timed {
        header.extend(["p50", "p90", "p99", "p99.9", "max"]);
    }
    Sheet {
        headline: headline(case),
        header: header.into_iter().map(str::to_owned).collect(),
        rows: case.subjects.iter().map(|subject| row(case, subject, &columns)).collect(),
    }
}

/// The subject of a case, as a headline.
pub(crate) fn headline(case: &CaseReport) -> String {
    let size = size::show(case.size);
    let mut text = case.title.as_ref().map(|title| format!("{title}: ")).unwrap_or_default();
    text += &match case.measure {
        Measure::Connect => "Connections made and ended per second, by blocking calls".to_owned(),
        Measure::Bandwidth => format!("Bandwidth, {size}, depth {}", case.depth),
        Measure::Latency => format!("Half round trip, {size}"),
        Measure::RoundTrip => format!("Whole round trip, {size}"),
        Measure::Rate => format!("Messages per second, {size}, depth {}", case.depth),
    };
    if case.list > 1 {
        text.push_str(&format!(", lists of {}", case.list));
    }
    if case.connections > 1 {
        text.push_str(&format!(", {} connections", case.connections));
    }
    text
}

fn row(case: &CaseReport, subject: &SubjectReport, columns: &Columns<'_>) -> Vec<String> {
    let mut cells = vec![subject.name.clone(), value(case.measure, subject.summary.median)];
    match &subject.versus {
        Some(Versus { ratio: all, .. }) => {
            let intervals = [interval(all.q1, all.q3), interval(all.low, all.high)];
            cells.push(ratio(all.medians));
            cells.extend(intervals);
        }
        None => cells.extend([String::new(), String::new(), String::new()]),
    }
    let ratios = |wanted: &dyn Fn(&str) -> bool| {
        let wanted = subject.also_versus.iter().filter(|versus| wanted(&versus.name));
        wanted.map(|versus| ratio(versus.ratio.medians)).collect::<Vec<_>>().join(" ")
    };
    if columns.also {
        cells.push(ratios(&|name| !columns.yardsticks.contains(&name)));
    }
    cells.extend(columns.yardsticks.iter().map(|yardstick| ratios(&|name| name == *yardstick)));
    if columns.ways {
        cells.push(way(subject));
    }
    if columns.timed {
        let p50 = subject.versus.as_ref().and_then(|versus| versus.p50);
        cells.push(p50.map(ratio).unwrap_or_default());
    }
    for cost in [subject.client_cpu, subject.server_cpu] {
        cells.push(match case.measure {
            Measure::Bandwidth => format!("{:.3}", cost.seconds_per_gib),
            _ => format!("{:.2}", cost.us_per_message),
        });
    }
    if columns.timed {
        match subject.percentiles {
            Some(p) => cells.extend([p.p50, p.p90, p.p99, p.p999, p.max].map(time)),
            None => cells.extend(std::iter::repeat_n(String::new(), 5)),
        }
    }
    cells
}

/// The way that a line has taken within the host, and the part of its messages that the client
/// carried out by itself.
fn way(subject: &SubjectReport) -> String {
    match (subject.local_path.as_deref(), subject.direct_part) {
        (None, _) => String::new(),
        (Some("off"), _) => "TCP".to_owned(),
        (Some(way), Some(part)) if part > 0.0 => format!("{way}, {:.0} % direct", part * 1e2),
        (Some(way), _) => way.to_owned(),
    }
}

/// A ratio; a small one has a digit more.
fn ratio(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

/// From here to there.
pub(crate) fn interval(low: f64, high: f64) -> String {
    format!("{}-{}", ratio(low), ratio(high))
}

/// A value with its unit.
pub(crate) fn value(measure: Measure, value: f64) -> String {
    match measure {
        Measure::Bandwidth if value < 1e8 => format!("{:.2} MB/s", value * 1e-6),
        Measure::Bandwidth => format!("{:.2} GB/s", value * 1e-9),
        Measure::Latency | Measure::RoundTrip => time(value),
        Measure::Rate | Measure::Connect if value < 1e6 => format!("{:.1} k/s", value * 1e-3),
        Measure::Rate | Measure::Connect => format!("{:.2} M/s", value * 1e-6),
    }
}

/// Seconds as people write them.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-4 => format!("{:.2} µs", s * 1e6),
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Sheet, sheet};
    use crate::report::Versus;
    use crate::report::tests::report;
    use crate::task::{Transport, Yardstick};
    use crate::ways::Way;

    #[test]
    fn yardsticks_have_columns_of_their_own() {
        let mut report = report(&[("TCP", 1.0), ("memcpy", 20.0), ("Write, auto", 10.0)], 0.1);
        let case = &mut report.cases[0];
        case.subjects[1].transport = Transport::Yardstick(Yardstick::Memcpy);
        let write = &mut case.subjects[2];
        write.transport = write.transport.by(Way::Auto);
        (write.local_path, write.direct_part) = (Some("rings".into()), Some(0.25));
        let versus = write.versus.clone().expect("raw TCP");
        let mut ratio = versus.ratio;
        ratio.medians = 0.05;
        write.also_versus.push(Versus { name: "memcpy".into(), ratio, ..versus });
        let Sheet { header, rows, .. } = sheet(case);
        let cells = |row: usize| {
            let of =
                |name| header.iter().position(|cell| cell == name).map(|at| &rows[row][at][..]);
            ["x TCP", "x other TCP", "x memcpy", "way"].map(of)
        };
        assert_eq!(cells(0), [Some(""), None, Some(""), Some("")]);
        assert_eq!(cells(1), [Some("20.00"), None, Some(""), Some("")]);
        assert_eq!(cells(2), [Some("10.00"), None, Some("0.050"), Some("rings, 25 % direct")]);
        // Others have neither.
        case.subjects.truncate(1);
        assert_eq!(sheet(case).header.len(), 7);
    }

    #[test]
    fn tables_are_broken_where_they_are_too_wide() {
        let cells = |cells: &[&str]| cells.iter().map(|&cell| cell.to_owned()).collect::<Vec<_>>();
        let sheet = Sheet {
            headline: String::new(),
            header: cells(&["", "median", "x TCP", "95 %"]),
            rows: vec![cells(&["Write, CRC", "1.00 GB/s", "1.10", "1.05-1.15"])],
        };
        assert_eq!(sheet.blocks(usize::MAX), [[0, 1, 2, 3]]);
        assert_eq!(sheet.blocks(40), [vec![0, 1, 2], vec![0, 3]]);
        // However narrow: a column each.
        assert_eq!(sheet.blocks(1), [[0, 1], [0, 2], [0, 3]]);
        for width in [30, 40, 50] {
            for block in sheet.blocks(width) {
                let lines: Vec<String> = sheet.block(&block).lines().collect();
                let widest = lines.iter().map(|line| 1 + line.trim_end().chars().count()).max();
                assert!(widest <= Some(width), "{widest:?} of {width}: {lines:?}");
            }
        }
    }
}
