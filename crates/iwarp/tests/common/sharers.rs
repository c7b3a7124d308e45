// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processes that share a UDP port: each echoes what comes for its queue pair, and does what its
//! parent tells it by lines.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::Duration;

use iwarp::port::share::{Listening, Mad, Member, PACKET};
use iwarp_os::clock;
use iwarp_os::poll::wait_readable;

use super::DEADLINE;
use super::census::descriptors;
use super::process::{Child, say, setting};

/// A port at an address of this test's own.
pub fn place() -> SocketAddr {
    let [a, b, c] = std::array::from_fn(|_| (getrandom::u32().unwrap() % 250) as u8 + 1);
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, a, b, c)), 14791)
}

/// The beginning of a packet to that queue pair, and a number that it carries.
pub fn packet(qpn: u32, number: u32) -> [u8; 12] {
    let mut packet = [0; 12];
    packet[4..8].copy_from_slice(&qpn.to_be_bytes());
    packet[8..].copy_from_slice(&number.to_be_bytes());
    packet
}

pub const REQ: u16 = 0x10;
pub const REP: u16 = 0x13;

/// A message of the connection manager for QP 1: of a REQ `key` is the service id, of others
/// our communication id.
pub fn mad(attribute: u16, key: u64) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    packet[0] = 0x64;
    packet[7] = 1;
    packet[20..24].copy_from_slice(&[1, 7, 2, 3]);
    packet[36..38].copy_from_slice(&attribute.to_be_bytes());
    match attribute {
        REQ => packet[52..60].copy_from_slice(&key.to_be_bytes()),
        _ => packet[48..52].copy_from_slice(&(key as u32).to_be_bytes()),
    }
    packet
}

/// The values of which [`mad`] was made.
pub fn of_mad(mad: &Mad) -> (bool, u16, u64) {
    let attribute = u16::from_be_bytes([mad.octets[36], mad.octets[37]]);
    let key = match attribute {
        REQ => u64::from_be_bytes(mad.octets[52..60].try_into().unwrap()),
        _ => u32::from_be_bytes(mad.octets[48..52].try_into().unwrap()).into(),
    };
    (mad.unclaimed, attribute, key)
}

/// A process with a share.
pub struct Sharer {
    pub child: Child,
    pub qpn: u32,
    pub comm_id: u32,
}

impl Sharer {
    /// Runs `test` as such a process: there it has to call [`serve`].
    pub fn start(test: &str, addr: SocketAddr) -> Self {
        let child = Child::start(test, "sharer", &[("IWARP_TEST_ADDR", addr.to_string())]);
        let said = child.hear("joined", DEADLINE);
        let mut numbers = said.split(' ').map(|number| number.parse().unwrap());
        let (qpn, comm_id) = (numbers.next().unwrap(), numbers.next().unwrap());
        Self { child, qpn, comm_id }
    }

    /// Tells it something, and hears the answer.
    pub fn ask(&mut self, line: &str) -> String {
        self.child.tell(line);
        self.child.hear("done", DEADLINE)
    }

    /// The next messages that it gets, so many.
    pub fn mads(&mut self, count: usize) -> Vec<(bool, u16, u64)> {
        let said = self.ask(&format!("mads {count}"));
        let one = |words: &str| {
            let mut words = words.split(',');
            let mut next = || words.next().unwrap();
            (next() == "true", next().parse().unwrap(), next().parse().unwrap())
        };
        said.split(' ').filter(|words| !words.is_empty()).map(one).collect()
    }

    /// Has it do nothing, as a process that waits for a lock, until [`Self::go_on`].
    pub fn hang(&mut self) {
        self.child.tell("hang");
        self.child.hear("hangs", DEADLINE);
    }

    pub fn go_on(&mut self) {
        self.child.tell("go on");
        self.child.hear("done", DEADLINE);
    }

    pub fn kill(&mut self) {
        self.child.kill();
        self.child.wait(DEADLINE);
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_raw(self.child.id() as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops it, and waits until it stands.
    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        super::until("a process to stop", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).ok()?;
            stat.rsplit(')').next()?.starts_with(" T").then_some(())
        });
    }
}

/// The process that [`Sharer::start`] starts.
pub fn serve() {
    let mut member = Member::join(setting("IWARP_TEST_ADDR").parse().unwrap()).unwrap();
    let data = UdpSocket::from(member.take_socket().unwrap());
    let (qpn, comm_id) = (member.allocate_qpn().unwrap(), member.comm_ids().unwrap().first | 7);
    say("joined", format!("{qpn} {comm_id}"));
    let stdin = std::io::stdin();
    let mut mads: Vec<String> = Vec::new();
    let mut pending: Option<String> = None;
    loop {
        let due = member.next_timeout().map(|at| at.saturating_sub(clock::now()));
        let timeout = due.unwrap_or(DEADLINE) + Duration::from_micros(1);
        let fds = [member.descriptor().unwrap(), data.as_fd(), stdin.as_fd()];
        let [_, packets, told] = wait_readable(fds, Some(timeout)).unwrap_or_default();
        member.turn(clock::now()).unwrap();
        while let Some(mad) = member.next_mad() {
            let (unclaimed, attribute, key) = of_mad(&mad);
            mads.push(format!("{unclaimed},{attribute},{key}"));
        }
        if packets {
            echo(&data);
        }
        if told && pending.is_none() {
            match next_line() {
                Some(line) => pending = Some(line),
                None => return,
            }
        }
        if let Some(line) = &pending
            && let Some(answer) = obey(line, &mut member, &mut mads)
        {
            say("done", answer);
            pending = None;
        }
    }
}

/// Sends back what comes, until `end` is readable.
pub fn echo_until_end(member: &mut Member, data: &UdpSocket, end: impl AsFd) {
    loop {
        let due = member.next_timeout().map(|at| at.saturating_sub(clock::now()));
        let timeout = due.unwrap_or(DEADLINE) + Duration::from_micros(1);
        let fds = [member.descriptor().unwrap(), data.as_fd(), end.as_fd()];
        let [_, packets, over] = wait_readable(fds, Some(timeout)).unwrap_or_default();
        member.turn(clock::now()).unwrap();
        if packets {
            echo(data);
        }
        if over {
            return;
        }
    }
}

/// Sends back what has come, with the number of this process.
fn echo(data: &UdpSocket) {
    let mut room = [0; 64];
    while let Ok((len, from)) = data.recv_from(&mut room) {
        let reply = [&room[..len], &std::process::id().to_be_bytes()].concat();
        data.send_to(&reply, from).unwrap();
    }
}

/// The answer, when there is one.
fn obey(line: &str, member: &mut Member, mads: &mut Vec<String>) -> Option<String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let number = || rest.parse::<u64>().unwrap();
    match verb {
        "listen" => {
            let known = member.listening(number());
            let listening = known.unwrap_or_else(|| member.listen(number()).unwrap());
            (listening != Listening::Asked).then(|| format!("{listening:?}"))
        }
        "unlisten" => {
            member.unlisten(number());
            Some(String::new())
        }
        "mads" => {
            let count = number() as usize;
            (mads.len() >= count).then(|| mads.drain(..count).collect::<Vec<_>>().join(" "))
        }
        // Does nothing until the next line.
        "hang" => {
            say("hangs", "");
            next_line();
            Some(String::new())
        }
        "broker" => member.has_broker().then(|| member.is_broker().to_string()),
        "descriptors" => Some(descriptors().to_string()),
        _ => panic!("{line}"),
    }
}

/// A line of the parent's, byte by byte: what stands behind it stays readable.
fn next_line() -> Option<String> {
    let mut line = Vec::new();
    let mut octet = [0];
    while let Ok(1..) = rustix::io::read(std::io::stdin(), &mut octet) {
        if octet == *b"\n" {
            return Some(String::from_utf8(line).unwrap());
        }
        line.push(octet[0]);
    }
    None
}
