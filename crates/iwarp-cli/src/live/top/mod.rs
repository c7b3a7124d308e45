// SPDX-License-Identifier: MIT OR Apache-2.0

//! `iwarp top`: the processes and their queue pairs, and what moves, on a screen.
//!
//! ```text
//!   rows     the rows of the table, and their order
//!   screen   the table on a terminal
//! ```

mod rows;
mod screen;

use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::facts::Process;
use rows::{Order, Rows, Scope};

/// Watch the processes that use this library: their queue pairs, and what moves.
///
/// A line for each queue pair or process, those that move most at the top: its way (memory of the
/// host, tcp, udp), requests and bytes sent in a second, messages that come in a second, requests
/// under way, receives posted, completions not polled. P50 and P99: of the requests that had
/// completions between two looks, half and 99 of 100 took no longer from post to completion. Of the
/// target of Writes and Reads nothing moves here: the line of the other end shows them.
///
/// The processes take these times while this runs, which costs them two looks at the clock for each
/// request.
///
/// Keys: q ends it, s changes the order, p shows processes or queue pairs, space stops the time.
#[derive(clap::Args, Debug)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Seconds between two looks
    #[arg(
        short, long, value_name = "SECONDS", default_value_t = 1,
        value_parser = clap::value_parser!(u64).range(1..=3600)
    )]
    interval: u64,
    /// Print so many tables as text in place of a screen
    #[arg(short, long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,
    /// The order: bytes, requests, messages or pid
    #[arg(short, long, value_name = "ORDER", default_value = "bytes")]
    order: Order,
    /// A line for each process
    #[arg(short, long)]
    processes: bool,
}

const EXAMPLES: &str = "\
Examples:
  iwarp top                                     every second, until q
  iwarp top --processes --order requests        the busiest processes
  iwarp top --batch 1                           one table, for a file";

pub(crate) fn run(args: &Args) -> Result<()> {
    let interval = Duration::from_secs(args.interval);
    let mut view = View {
        scope: if args.processes { Scope::Processes } else { Scope::QueuePairs },
        order: args.order,
    };
    match args.batch {
        Some(count) => print(count, interval, view),
        None if io::stdout().is_terminal() && io::stdin().is_terminal() => {
            let mut terminal = ratatui::try_init()?;
            let result = show(&mut terminal, interval, &mut view);
            ratatui::restore();
            result
        }
        None => bail!("this is no terminal: --batch COUNT prints tables"),
    }
}

/// The part that is shown.
#[derive(Clone, Copy, Debug)]
struct View {
    scope: Scope,
    order: Order,
}

/// The time for which processes are watched beyond the next look.
const MARGIN: Duration = Duration::from_secs(5);

/// The processes at a time.
struct Look {
    at: Instant,
    processes: Vec<Process>,
}

impl Look {
    /// The next one comes after that time.
    fn now(interval: Duration) -> Self {
        let watch = Process::watched(None, interval + MARGIN);
        Self { at: Instant::now(), processes: watch.unwrap_or_default() }
    }

    fn rows(&self, before: &Self, view: View) -> Rows {
        let time = self.at.duration_since(before.at);
        Rows::new(&before.processes, &self.processes, time, view.scope, view.order)
    }
}

fn print(count: u64, interval: Duration, view: View) -> Result<()> {
    let mut before = Look::now(interval);
    for number in 0..count {
        thread::sleep(interval);
        let look = Look::now(interval);
        if number > 0 {
            println!();
        }
        println!("{}", look.rows(&before, view).text());
        before = look;
    }
    Ok(())
}

fn show(terminal: &mut DefaultTerminal, interval: Duration, view: &mut View) -> Result<()> {
    let mut before = Look::now(interval);
    let mut look = Look { at: before.at, processes: Vec::new() };
    let mut next = before.at;
    let mut stands = false;
    loop {
        if !stands && Instant::now() >= next {
            if !look.processes.is_empty() {
                before = look;
            }
            look = Look::now(interval);
            next = look.at + interval;
        }
        let rows = look.rows(&before, *view);
        terminal.draw(|frame| screen::draw(frame, &rows, stands))?;
        let patience = next.saturating_duration_since(Instant::now());
        if event::poll(if stands { interval } else { patience })?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match wish(key) {
                Some(Wish::End) => return Ok(()),
                Some(Wish::Order) => view.order = view.order.next(),
                Some(Wish::Scope) => view.scope = view.scope.other(),
                Some(Wish::Stand) => stands = !stands,
                None => {}
            }
        }
    }
}

/// The meaning of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wish {
    End,
    Order,
    Scope,
    Stand,
}

fn wish(key: KeyEvent) -> Option<Wish> {
    Some(match key.code {
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Wish::End,
        KeyCode::Char('q') | KeyCode::Esc => Wish::End,
        KeyCode::Char('s') => Wish::Order,
        KeyCode::Char('p') => Wish::Scope,
        KeyCode::Char(' ') => Wish::Stand,
        _ => return None,
    })
}
