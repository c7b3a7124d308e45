// SPDX-License-Identifier: MIT OR Apache-2.0

//! The lines of the log about connections: that they are there, and what became of them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use iwarp::cm::{self, ConnectParams, Listener};
use iwarp::{Device, Options, Personality, REPORT, Wire, report};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::common::meet::{TestHost, exchange};
use crate::common::process::{goes_on, passed_apart, this_test};
use crate::common::{DEADLINE, Setup, parts, until};
use crate::rc;

/// Keeps the lines that say what becomes of connections, and those of the default level.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// Listens in the whole process.
    pub(crate) fn listen() -> Self {
        let lines = Self::default();
        tracing::subscriber::set_global_default(lines.clone()).unwrap();
        lines
    }

    /// Waits until there are so many with that text, and takes them out. The others stay.
    pub(crate) fn take(&self, count: usize, text: &str) -> Vec<String> {
        until(text, || {
            let mut lines = self.0.lock().unwrap();
            (lines.iter().filter(|line| line.contains(text)).count() >= count).then(|| {
                let found = |line: &mut String| line.contains(text);
                lines.extract_if(.., found).collect()
            })
        })
    }

    fn take_one(&self, text: &str) -> String {
        let mut lines = self.take(1, text);
        assert_eq!(lines.len(), 1, "{lines:?}");
        lines.remove(0)
    }

    /// Forgets what is there.
    fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let wanted = metadata.target() == report::FATE && *metadata.level() <= Level::DEBUG;
        wanted || metadata.target() == REPORT
    }

    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(report::line(event));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

const CONNECTED: &str = "connected qp=";
const ENDED: &str = "the connection has ended";
const FAILED: &str = "no connection was made";

/// The value of a field.
fn field<'a>(line: &'a str, name: &str) -> &'a str {
    let (_, rest) =
        line.split_once(&format!(" {name}=")).unwrap_or_else(|| panic!("{name}: {line}"));
    match rest.strip_prefix('"') {
        Some(quoted) => quoted.split_once('"').unwrap().0,
        None => rest.split(' ').next().unwrap(),
    }
}

/// One of them has the text in its reason.
fn one_says<'a>(lines: &'a [String], why: &str) -> &'a str {
    let mut found = lines.iter().filter(|line| field(line, "why").contains(why));
    found.next().unwrap_or_else(|| panic!("{why}: {lines:?}"))
}

/// The lines of both ends belong to each other.
fn mirror([one, other]: [&str; 2]) {
    assert_eq!(field(one, "local"), field(other, "peer"));
    assert_eq!(field(other, "local"), field(one, "peer"));
    if one.starts_with(ENDED) {
        assert_eq!(field(one, "bytes_sent"), field(other, "bytes_received"), "{one} {other}");
        assert_eq!(field(other, "bytes_sent"), field(one, "bytes_received"), "{one} {other}");
        assert_ne!(field(one, "bytes_sent"), "0");
    }
}

fn pair(lines: &[String]) -> [&str; 2] {
    let [one, other] = lines else { panic!("{lines:?}") };
    [one, other]
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A server is asked, and does with the request what `answer` does; the client's result.
fn ask(
    options: &Options,
    answer: impl FnOnce(cm::Incoming) + Send,
) -> Result<cm::Connection, cm::ConnectError> {
    let server = Device::with_options(options.clone()).unwrap();
    let listener = Listener::bind(&server, any_port()).unwrap();
    let addr = listener.local_addr().unwrap();
    let client = Device::with_options(options.clone()).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| answer(listener.accept(Some(DEADLINE)).unwrap().expect("a request")));
        let (_pd, _, _, qp) = parts(&client, 4);
        cm::connect(&client, addr, &qp, &ConnectParams::new(), DEADLINE)
    })
}

#[test]
fn of_iwarp_by_the_connection_manager() {
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    let lines = Lines::listen();
    let options = Options::new().markers(true);
    // Made, used and ended in good order.
    let (client, server) = Setup::both(&options).connect();
    let said = lines.take(2, CONNECTED);
    mirror(pair(&said));
    let initiator = said.iter().find(|line| field(line, "role") == "initiator").unwrap();
    assert_eq!(field(initiator, "qp"), client.qp.number().to_string());
    for (name, value) in
        [("wire", "iWARP"), ("mpa", "2"), ("crc", "on"), ("markers", "both ways"), ("ord", "16")]
    {
        assert_eq!(field(initiator, name), value, "{initiator}");
    }
    let sink = server.region(1000);
    server.post_recv(1, &[sink.whole()]);
    client.send(2, &[client.region(1000).whole()]);
    server.received();
    client.connection.disconnect();
    server.connection.wait_disconnected(Some(DEADLINE)).unwrap();
    let said = lines.take(2, ENDED);
    mirror(pair(&said));
    one_says(&said, "this end disconnected");
    one_says(&said, "the peer closed it in good order");
    drop((client, server));
    assert!(lines.0.lock().unwrap().iter().any(|line| line.starts_with("connecting ")));
    lines.clear();
    goes_on();

    // Broken off with a Terminate, which has a name at both ends.
    let (client, server) = Setup::both(&options).connect();
    client.send(2, &[client.region(10).whole()]);
    let said = lines.take(2, ENDED);
    one_says(&said, "this end sent a Terminate: ");
    one_says(&said, "the peer sent a Terminate: ");
    assert!(said.iter().all(|line| field(line, "why").contains("(1/2/02)")), "{said:?}");
    drop((client, server));
    // Reset.
    lines.clear();
    let (client, server) = Setup::both(&options).connect();
    server.qp.modify(iwarp::QpState::Reset).unwrap();
    let said = lines.take(2, ENDED);
    one_says(&said, "the program moved the queue pair to Reset");
    one_says(&said, "reset");
    drop((client, server));
    lines.clear();
    goes_on();

    // Rejected by the program.
    ask(&options, |request| request.reject(b"go away").unwrap()).unwrap_err();
    let said = lines.take_one("the program rejected a connection");
    assert_eq!((field(&said, "private_data"), field(&said, "wire")), ("7", "iWARP"));
    let said = lines.take_one(FAILED);
    assert!(field(&said, "why").contains("rejected the connection (7 bytes"), "{said}");
    lines.clear();
    // Not what a listener takes.
    let device = Device::with_options(options.clone()).unwrap();
    let listener = Listener::bind(&device, any_port()).unwrap();
    let mut stranger = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    stranger.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let said = lines.take_one("a connection was refused");
    assert_eq!(field(&said, "peer"), stranger.local_addr().unwrap().to_string());
    assert!(field(&said, "why").contains("wrong key"), "{said}");
}

/// A server that is not up, or is another's.
#[test]
fn of_servers_that_are_not_there_at_the_default_level() {
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    let lines = Lines::listen();
    let device = Device::open().unwrap();
    let (_pd, _, _, qp) = parts(&device, 4);
    let connect = |addr| cm::connect(&device, addr, &qp, &ConnectParams::new(), DEADLINE);
    let web = TcpListener::bind(any_port()).unwrap();
    let addr = web.local_addr().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut client, _) = web.accept().unwrap();
            client.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n").unwrap();
            // A socket that is closed with something unread takes its answer back.
            let _ = client.read_to_end(&mut Vec::new());
        });
        connect(addr).unwrap_err();
    });
    let said = lines.take_one("answers, but not as an RDMA (iWARP) server does");
    assert!(said.contains(&format!("{addr} answers")), "{said}");
    assert!(said.contains("it began with \"HTTP/1.1 400 Bad"), "{said}");
    drop(web);
    lines.take_one(FAILED);
    let error = connect(addr).unwrap_err();
    assert!(
        matches!(&error, cm::ConnectError::Unreachable(error)
            if error.kind() == std::io::ErrorKind::ConnectionRefused),
        "{error:?}"
    );
    let said = lines.take_one("nobody listens at");
    assert!(said.contains(&format!("nobody listens at {addr}: ")), "{said}");
    assert!(lines.take_one(FAILED).contains("refused"));
}

#[test]
fn of_queue_pairs_that_meet_by_themselves() {
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    let lines = Lines::listen();
    let (one, other) = (TestHost::new(), TestHost::new());
    let (a, b) = (one.end(), other.end());
    a.all_the_way(&b);
    b.all_the_way(&a);
    exchange(&a, &b);
    let said = lines.take(2, CONNECTED);
    mirror(pair(&said));
    let ours = said.iter().find(|line| field(line, "qp") == a.qp.number().to_string()).unwrap();
    assert_eq!(field(ours, "peer_qp"), b.qp.number().to_string());
    drop(a);
    let said = lines.take(2, ENDED);
    one_says(&said, "the queue pair was destroyed");
    one_says(&said, "the peer closed it in good order");
    assert!(said.iter().all(|line| field(line, "bytes_sent") != "0"), "{said:?}");
}

#[test]
fn of_roce() {
    if passed_apart(this_test!(), DEADLINE * 2) {
        return;
    }
    let lines = Lines::listen();
    // Queue pairs that the program sets up, on a network in memory.
    let hosts = rc::Hosts::new(1);
    let ends = rc::HOSTS.map(|ip| rc::end(&hosts.device(ip, rc::options()), ip));
    rc::join(&ends, |attributes| attributes.path_mtu(1024));
    rc::exchange(&ends, &[3000]);
    let said = lines.take(2, CONNECTED);
    let one = said.iter().find(|line| field(line, "qp") == ends[0].qp.number().to_string());
    let one = one.unwrap();
    for (name, value) in [
        ("wire", "RoCE v2".to_owned()),
        ("local", format!("{}:4791", rc::HOSTS[0])),
        ("peer", format!("{}:4791", rc::HOSTS[1])),
        ("peer_qp", ends[1].qp.number().to_string()),
        ("path_mtu", "1024".to_owned()),
        ("sq_psn", ends[0].qp.psn().to_string()),
        ("rq_psn", ends[1].qp.psn().to_string()),
    ] {
        assert_eq!(field(one, name), value, "{one}");
    }
    let [one, other] = ends;
    drop(other);
    let said = lines.take_one("the queue pair was destroyed");
    assert!(
        said.starts_with(ENDED) && field(&said, "bytes_received").parse::<u32>().unwrap() > 6000
    );
    // This gets no answer.
    let region = one.region(10);
    one.send(1, &[region.whole()]);
    let said = lines.take_one(ENDED);
    assert!(field(&said, "why").contains("retries exceeded"), "{said}");
    drop(one);
    lines.clear();
    goes_on();

    // By the connection manager.
    let options = Options::new().personality(Personality::Roce).wire(Wire::Roce);
    ask(&options, |request| request.reject(b"no").unwrap()).unwrap_err();
    let said = lines.take_one("the program rejected a connection");
    assert_eq!(field(&said, "wire"), "RoCE v2");
    assert!(field(&lines.take_one(FAILED), "why").contains("the peer's program refused"));
    let (client, server) = Setup::both(&options).connect();
    let said = lines.take(2, CONNECTED);
    assert!(said.iter().all(|line| field(line, "path_mtu") == "4096"), "{said:?}");
    client.connection.disconnect();
    server.connection.wait_disconnected(Some(DEADLINE)).unwrap();
    let said = lines.take(2, ENDED);
    one_says(&said, "this end disconnected");
    one_says(&said, "the peer disconnected (DREQ)");
}
