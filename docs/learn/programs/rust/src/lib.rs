//! The common part of all programs of the book: two ends that find each other. See chapter 7.

use std::error::Error;
use std::net::SocketAddr;
use std::process::exit;
use std::sync::{Mutex, PoisonError};
use std::thread;

use iwarp::{Device, Options, Personality, ProtectionDomain, cm};
use iwarp_session::{Block, Config, Exposed, GRANT_LEN, Listener, Pending, Received, RemoteGrant};
use iwarp_session::{Request, Session};

/// The error that ends a program early.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Opens the device that other programs see under `iwarp run`: one like a RoCE card.
///
/// # Errors
///
/// If a variable makes no sense, or the system lacks descriptors.
pub fn open_device() -> Result<Device, Failure> {
    Ok(Device::open_with(Options::new().personality(Personality::Roce))?)
}

/// Runs both functions, each in a thread of its own, the second so many times.
///
/// # Errors
///
/// If opening the device or listening fails.
pub fn learn(
    server: fn(&Listener) -> Result<(), Failure>,
    client: fn(&ProtectionDomain, SocketAddr) -> Result<(), Failure>,
    clients: usize,
) -> Result<(), Failure> {
    let device = open_device()?;
    let listener = Listener::bind(&device.alloc_pd(), "127.0.0.1:0")?;
    let addr = listener.local_addr().ok_or("the listener has no address")?;
    run(|| server(&listener), || client(&device.alloc_pd(), addr), clients);
    Ok(())
}

/// As [`learn`], for programs that use the verbs themselves.
///
/// # Errors
///
/// If opening the device or listening fails.
pub fn learn_verbs(
    server: fn(&Device, &cm::Listener) -> Result<(), Failure>,
    client: fn(&Device, SocketAddr) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let device = open_device()?;
    let listener = cm::Listener::bind(&device, "127.0.0.1:0")?;
    let addr = listener.local_addr().ok_or("the listener has no address")?;
    run(|| server(&device, &listener), || client(&device, addr), 1);
    Ok(())
}

/// Runs both. A failure of one ends the program, as the other may wait for ever.
pub fn run(
    server: impl Fn() -> Result<(), Failure> + Sync,
    client: impl Fn() -> Result<(), Failure> + Sync,
    clients: usize,
) {
    let judge = |outcome: Result<(), Failure>| {
        if let Err(failure) = outcome {
            eprintln!("{failure}");
            exit(1);
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| judge(server()));
        for _ in 0..clients {
            scope.spawn(|| judge(client()));
        }
    });
    let later = LATER.lock().unwrap_or_else(PoisonError::into_inner);
    later.iter().for_each(|line| println!("{line}"));
}

static LATER: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints a line when both ends are done: else two ends that are busy at once would mix their
/// lines, each time in another way.
pub fn print_later(line: String) {
    LATER.lock().unwrap_or_else(PoisonError::into_inner).push(line);
}

/// Accepts a connection and sends the peer a grant of all of that memory. The receive is for what
/// the peer says last.
///
/// # Errors
///
/// If connecting or sending fails.
pub fn accept_and_grant(
    request: Request,
    memory: &Exposed,
) -> Result<(Session, Pending<Received>), Failure> {
    let prepared = Config::new().prepare(request.pd())?;
    let word = prepared.recv(Block::new(request.pd(), 64)?);
    let session = prepared.accept(request).wait()?;
    session.send_inline(&memory.grant().to_octets()).wait()?;
    Ok((session, word))
}

/// Connects and receives what the server grants.
///
/// # Errors
///
/// If connecting or receiving fails.
pub fn connect_for_grant(
    pd: &ProtectionDomain,
    addr: SocketAddr,
) -> Result<(Session, RemoteGrant), Failure> {
    let prepared = Config::new().prepare(pd)?;
    let grant = prepared.recv(Block::new(pd, GRANT_LEN)?);
    let session = prepared.connect(addr).wait()?;
    let grant = grant.wait()?.block;
    Ok((session, RemoteGrant::from_octets(grant[..].try_into()?)))
}
