// SPDX-License-Identifier: MIT OR Apache-2.0

//! Running a case against a peer.

mod frames;
mod said;
mod session;
mod steps;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::case::{Case, Need, Role};
use crate::link::Link;
use crate::peer::Peer;
use crate::transport::{Tcp, Transport};
use crate::verdict::{Deviation, Outcome, Stop, Verdict};
use session::Session;

/// The settings for all cases of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Ask for CRCs.
    pub crc: bool,
    /// Ask the peer for markers.
    pub markers: bool,
    /// The revision of the Requests that are sent: 1 or 2.
    pub revision: u8,
    /// The program that answers.
    pub peer: Peer,
    /// The time that the peer may take for one step.
    pub patience: Duration,
    /// The pause between the peer's Reply and the first FPDU: some peers lose one that comes at
    /// once.
    pub pause: Duration,
    /// The peer was started for this case: while it refuses the connection it does not listen yet.
    pub starts: bool,
    /// Run the cases that wait for a peer's time limits.
    pub slow: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            crc: true,
            markers: false,
            revision: 2,
            peer: Peer::Any,
            patience: Duration::from_secs(5),
            pause: Duration::ZERO,
            starts: false,
            slow: false,
        }
    }
}

/// The time that the peer may take to close its end when a case is over.
const GOODBYE: Duration = Duration::from_millis(500);
/// The pause before it is asked again whether a peer has come.
const TURN: Duration = Duration::from_millis(2);

/// Connects to a peer and runs a case.
pub fn connect(peer: SocketAddr, case: &Case, settings: &Settings) -> Outcome {
    let begun = Instant::now();
    let stream = may_run(case, settings).and_then(|()| {
        call(peer, settings).map_err(|error| format!("cannot connect to {peer}: {error}"))
    });
    run(tcp(stream, settings), Role::Connect, case, settings, begun)
}

fn call(peer: SocketAddr, settings: &Settings) -> io::Result<TcpStream> {
    let deadline = Instant::now() + settings.patience;
    loop {
        match TcpStream::connect_timeout(&peer, settings.patience) {
            Err(error)
                if settings.starts
                    && error.kind() == io::ErrorKind::ConnectionRefused
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(TURN);
            }
            called => return called,
        }
    }
}

/// Takes the next connection of a peer and runs a case.
pub fn listen(listener: &TcpListener, case: &Case, settings: &Settings) -> Outcome {
    let begun = Instant::now();
    let stream = may_run(case, settings).and_then(|()| {
        accept(listener, settings.patience)
            .map_err(|error| format!("no peer has connected: {error}"))
    });
    run(tcp(stream, settings), Role::Listen, case, settings, begun)
}

/// Runs a case over a connection that is there, by its own clock: the way into a simulator.
pub fn over(
    transport: Box<dyn Transport>,
    role: Role,
    case: &Case,
    settings: &Settings,
) -> Outcome {
    let begun = transport.now();
    let transport = may_run(case, settings).map(|()| transport);
    run(transport, role, case, settings, begun)
}

fn tcp(
    stream: Result<TcpStream, String>,
    settings: &Settings,
) -> Result<Box<dyn Transport>, String> {
    let tcp = Tcp::new(stream?, settings.patience).map_err(|error| error.to_string())?;
    Ok(Box::new(tcp))
}

/// Succeeds if the case is for such a peer; the error says why not.
fn may_run(case: &Case, settings: &Settings) -> Result<(), String> {
    let lacks = settings.peer.lacks(&case.needs).or_else(|| {
        let hurries = case.needs.contains(&Need::Time) && !settings.slow;
        hurries.then_some("it waits for a time limit of the peer's: --slow")
    });
    lacks.map_or(Ok(()), |why| Err(why.to_owned()))
}

/// Waits for a connection, but not for ever.
fn accept(listener: &TcpListener, patience: Duration) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let deadline = Instant::now() + patience;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if Instant::now() >= deadline => return Err(io::ErrorKind::TimedOut.into()),
            Err(_) => std::thread::sleep(TURN),
        }
    }
}

fn run(
    transport: Result<Box<dyn Transport>, String>,
    role: Role,
    case: &Case,
    settings: &Settings,
    begun: Instant,
) -> Outcome {
    let link = transport.and_then(|transport| {
        Link::new(transport, role == Role::Connect).map_err(|error| error.to_string())
    });
    let (verdict, took, record) = match link {
        Err(why) => (Verdict::NotSeen { why }, Duration::ZERO, None),
        Ok(link) => {
            let mut session = Session::new(link, role, case, settings);
            let verdict = verdict(&mut session, case);
            let took = session.link.now().saturating_duration_since(begun);
            (verdict, took, Some(session.end()))
        }
    };
    Outcome { case: case.name.clone(), role, verdict, took, record }
}

fn verdict(session: &mut Session<'_>, case: &Case) -> Verdict {
    for step in &case.steps {
        match session.step(&step.action) {
            Ok(()) => {}
            Err(Stop::NotSeen(why)) => return Verdict::NotSeen { why },
            Err(Stop::Deviates { expected, came, bytes }) => {
                if let Some(why) = session.refusal() {
                    return Verdict::NotSeen { why };
                }
                return Verdict::Deviates(Deviation {
                    step: step.text.clone(),
                    line: step.line,
                    expected,
                    came,
                    bytes: crate::text::hex(&bytes),
                });
            }
        }
    }
    Verdict::Conforms
}
