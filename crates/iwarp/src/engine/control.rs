// SPDX-License-Identifier: MIT OR Apache-2.0

//! Answers to questions of other processes about this one (`iwarp ps`, `iwarp resource`,
//! `iwarp why`).
//!
//! The worker answers processes of this user and of root, so a process without a device costs
//! nothing, and one with a device a descriptor. To the question `describe` the answer is a JSON
//! object of all that is in the [census](super::census). `capture FILE` begins a capture, `capture`
//! ends it. `log LEVEL` sets the level of the log. `faults RULES` puts rules, or none, in the place
//! of those in force. `watch SECONDS` has descriptions tell the times of requests for so long.
//! `link down` and `link up` pull the cables of all ports, and put them back.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use iwarp_os::questions::{Asker, Questioned};
use iwarp_os::{Interest, Ready, clock};

use crate::capture::{self, Capture, CaptureError};
use crate::engine::census::{self, Kind};
use crate::engine::log_level::set_level;
use crate::engine::options::log;
use crate::engine::tasks::{Task, Tasks};
use crate::engine::worker::Worker;
use crate::faults;
use crate::port::Descriptors;
use crate::report;
use crate::report::Object;

/// Objects of a kind that are described at most.
const MOST: usize = 10_000;
/// Others that may ask at a time, and the time in which each has to.
const ASKERS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(2);
/// Seconds for which one may watch.
const LONGEST: u64 = 7200;
/// The time for which none is taken where descriptors or memory are short.
const PAUSE: Duration = Duration::from_millis(500);

/// Answers as long as this lives.
pub(crate) struct Control {
    listening: Arc<Listening>,
    task: u64,
}

struct Listening {
    questioned: Questioned,
    tasks: Arc<Tasks>,
    worker: Weak<Worker>,
    askers: Arc<AtomicUsize>,
    task: OnceLock<u64>,
    itself: Weak<Self>,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Control {
    /// The worker answers from now on. Not having this is no error for a program.
    pub(crate) fn open(worker: &Arc<Worker>) -> io::Result<Self> {
        let questioned = Questioned::listen()?;
        let listening = Arc::new_cyclic(|itself| Listening {
            questioned,
            tasks: Arc::clone(worker.tasks()),
            worker: Arc::downgrade(worker),
            askers: Arc::default(),
            task: OnceLock::new(),
            itself: Weak::clone(itself),
        });
        let task = Arc::clone(&listening) as Arc<dyn Task>;
        let task = listening.tasks.add(listening.descriptors(), Interest::READ, task)?;
        let _ = listening.task.set(task);
        Ok(Self { listening, task })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.listening.tasks.remove(self.task, self.listening.descriptors());
    }
}

impl Listening {
    fn descriptors(&self) -> Descriptors<'_> {
        Descriptors::one(self.questioned.as_fd())
    }

    /// Takes none for a while: the descriptor would tell of the one that waits without end.
    #[cold]
    fn pause(&self) {
        let (Some(worker), Some(task)) = (self.worker.upgrade(), self.task.get()) else { return };
        let listens = |interest| self.tasks.update(*task, self.descriptors(), interest);
        if listens(Interest::NONE).is_ok() {
            let again = |listening: &Self| {
                if let Some(task) = listening.task.get() {
                    let descriptors = listening.descriptors();
                    let _ = listening.tasks.update(*task, descriptors, Interest::READ);
                }
            };
            worker.after(PAUSE, &self.itself, again);
        }
    }

    fn accept(&self) -> io::Result<()> {
        let Some(asker) = self.questioned.accept()? else { return Ok(()) };
        let Some(worker) = self.worker.upgrade() else { return Ok(()) };
        if self.askers.load(Ordering::Relaxed) >= ASKERS {
            return Ok(());
        }
        let conversation = Arc::new(Conversation {
            asker,
            tasks: Arc::clone(&self.tasks),
            worker: Weak::clone(&self.worker),
            askers: Counted::new(&self.askers),
            task: OnceLock::new(),
        });
        let task = Arc::clone(&conversation) as Arc<dyn Task>;
        let descriptors = Descriptors::one(conversation.asker.as_fd());
        let task = self.tasks.add(descriptors, Interest::READ, task)?;
        let _ = conversation.task.set(task);
        worker.after(PATIENCE, &Arc::downgrade(&conversation), Conversation::end);
        Ok(())
    }
}

impl Task for Listening {
    fn ready(&self, _: Ready) {
        // One at a time: of another the descriptor tells.
        match self.accept() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => self.pause(),
            _ => {}
        }
    }
}

/// Counts one that asks.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(askers: &Arc<AtomicUsize>) -> Self {
        askers.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(askers))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Conversation {
    asker: Asker,
    tasks: Arc<Tasks>,
    worker: Weak<Worker>,
    #[expect(dead_code, reason = "counts while it is there")]
    askers: Counted,
    task: OnceLock<u64>,
}

impl Task for Conversation {
    fn ready(&self, _: Ready) {
        match self.asker.question() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => {}
            Ok(question) => {
                // One that has gone wants no answer.
                let _ = self.asker.answer(&self.answer(&question));
            }
        }
        self.end();
    }
}

impl Conversation {
    fn answer(&self, question: &str) -> String {
        let mut answer = Object::new();
        match question.split_once(' ').unwrap_or((question, "")) {
            ("describe", "") => describe(&mut answer),
            ("capture", "") => capture::end(),
            ("capture", to) => {
                if let Err(error) = self.capture(to) {
                    answer.text("error", error);
                }
            }
            ("faults", rules) => {
                if let Err(error) = set_faults(rules) {
                    answer.text("error", error);
                }
            }
            ("watch", seconds) => {
                if let Err(error) = watch(seconds) {
                    answer.text("error", error);
                }
            }
            ("link", "down") => pull_cable(true),
            ("link", "up") => pull_cable(false),
            ("log", level) => {
                if let Err(error) = set_log(level) {
                    answer.text("error", error);
                }
            }
            _ => answer.text("error", "this version of the library does not know that question"),
        }
        answer.end()
    }

    fn capture(&self, to: &str) -> Result<(), String> {
        let wanted: Capture = to.parse().map_err(|error: CaptureError| error.to_string())?;
        match capture::begin_later(&wanted) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err("it has a capture to another file, and keeps that one".to_owned());
            }
            begun => begun.map_err(|error| error.to_string())?,
        }
        Worker::write_captures(Weak::clone(&self.worker));
        census::have_capture();
        Ok(())
    }

    /// The connection ends with the task.
    fn end(&self) {
        if let Some(task) = self.task.get() {
            self.tasks.remove(*task, Descriptors::one(self.asker.as_fd()));
        }
    }
}

fn set_log(level: &str) -> Result<(), &'static str> {
    let level = log(level).ok_or("the level of a log is off, error, warn, info or debug")?;
    set_level(level)
}

fn watch(seconds: &str) -> Result<(), &'static str> {
    let seconds = seconds.parse().ok().filter(|seconds| (1..=LONGEST).contains(seconds));
    let seconds = seconds.ok_or("requests are watched for 1 to 7200 seconds")?;
    census::watch(clock::now() + Duration::from_secs(seconds));
    Ok(())
}

fn pull_cable(pulled: bool) {
    if faults::pull(pulled) {
        let state = if pulled { "down on purpose" } else { "up again" };
        report!(WARN, "the ports of this process are {state} (iwarp set)");
        census::cable(pulled);
    }
}

fn set_faults(text: &str) -> Result<(), String> {
    let (network, rules) = faults::split(text).map_err(|error| error.to_string())?;
    if !network.is_empty() {
        let why = "faults of the network are there from the start of a process: start it with \
                   IWARP_FAULTS";
        return Err(why.to_owned());
    }
    faults::replace(&rules).map_err(|error| error.to_string())?;
    census::have_faults();
    Ok(())
}

fn describe(to: &mut Object) {
    to.text("version", env!("CARGO_PKG_VERSION"));
    to.number("pid", process::id());
    for kind in Kind::ALL {
        let all = census::count(kind);
        if all > MOST {
            to.count("left_out", all - MOST);
        }
        to.list(kind.name(), census::describe(kind, MOST));
    }
}
