// SPDX-License-Identifier: MIT OR Apache-2.0

//! The table on a terminal.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Style, Stylize as _};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Row, Table};

use super::rows::{COLUMNS, Rows};

/// Widths of the columns.
const WIDTHS: [u16; COLUMNS.len()] = [8, 16, 10, 6, 7, 7, 7, 7, 6, 6, 11, 7, 8];

/// `stands`: the time is stopped.
pub(super) fn draw(frame: &mut Frame<'_>, rows: &Rows, stands: bool) {
    let silent =
        u16::try_from(rows.silent().len()).unwrap_or(u16::MAX).min(frame.area().height / 3);
    let [title, table, others, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(silent),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Line::from(rows.title()).bold(), title);
    let lines = rows.cells().map(|cells| Row::new(cells.iter().map(String::as_str)));
    let header = Row::new(COLUMNS).style(Style::new().reversed());
    let widths = WIDTHS.map(Constraint::Length);
    frame.render_widget(Table::new(lines, widths).header(header), table);
    let silent: Vec<_> = rows.silent().iter().map(|line| Line::from(line.as_str()).red()).collect();
    frame.render_widget(Paragraph::new(silent), others);
    let words = "q ends   s order   p processes or queue pairs   space stops the time";
    let words = if stands { format!("{words}   STOPPED") } else { words.to_owned() };
    frame.render_widget(Line::from(words).dim(), keys);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::live::top::rows::{Order, Scope, tests};

    fn screen(width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory");
        let rows = tests::rows(Scope::QueuePairs, Order::Bytes);
        terminal.draw(|frame| draw(frame, &rows, true)).expect("memory");
        let cells = terminal.backend().buffer().content();
        let lines = cells.chunks(width.into());
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect()).collect()
    }

    #[test]
    fn all_is_on_the_screen() {
        let lines = screen(124, 8);
        assert!(lines[0].starts_with("2 processes, 2 queue pairs"), "{lines:#?}");
        assert!(lines[1].starts_with("PID      PROGRAM"), "{lines:#?}");
        assert!(lines[2].starts_with("12       busy") && lines[2].contains("90k"), "{lines:#?}");
        assert!(lines[6].starts_with("busy (process 13) does not answer"), "{lines:#?}");
        assert!(lines[7].contains("STOPPED"), "{lines:#?}");
    }

    #[test]
    fn a_small_screen_is_no_error() {
        for (width, height) in [(1, 1), (10, 2), (300, 3)] {
            assert_eq!(screen(width, height).len(), usize::from(height));
        }
    }
}
