//! A test with a second process: the test binary runs the same test once more, as a child that
//! learns from its environment which part it plays.
#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::cm::{ConnectParams, Listener, connect};
use iwarp::{Device, Options, QueuePairAttributes};

use crate::common::{DEADLINE, End};

const ROLE: &str = "IWARP_TEST_ROLE";

/// Which part this process plays; `None` in the one that was started by hand.
pub fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// What the parent has set.
pub fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// Tells the parent something. The harness may have begun a line.
pub fn say(key: &str, value: impl std::fmt::Display) {
    println!("\n@{key} {value}");
    std::io::stdout().flush().unwrap();
}

/// Waits for a line of the parent's.
pub fn listen_to_parent() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// The other process. Killed when dropped.
pub struct Child {
    child: std::process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Child {
    /// Runs `test` of this binary in another process.
    pub fn start(test: &str, role: &str, settings: &[(&str, String)]) -> Self {
        let mut command = Command::new(env::current_exe().unwrap());
        command
            .args([test, "--exact", "--nocapture", "--include-ignored", "--test-threads=1"])
            .env(ROLE, role)
            .envs(settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // A process that exits in the middle of its work has freed nothing: no leak.
        if let Ok(options) = env::var("ASAN_OPTIONS") {
            command.env("ASAN_OPTIONS", format!("{options}:detect_leaks=0"));
        }
        let mut child = command.spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, stdin, lines }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the child says about `key`.
    pub fn hear(&self, key: &str, patience: Duration) -> String {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(value) = line.strip_prefix('@').and_then(|l| l.strip_prefix(key)) {
                        return value.trim().to_owned();
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("the child does not say {key} in time"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the child ended without saying {key}")
                }
            }
        }
    }

    pub fn tell(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits for its end.
    pub fn wait(&mut self, patience: Duration) -> ExitStatus {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the child does not end");
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits for its end, which must be a success.
    pub fn succeeds(mut self, patience: Duration) {
        let status = self.wait(patience);
        assert!(status.success(), "{status}");
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Gone already in most cases.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A device that listens on loopback, and where.
pub fn listen(options: &Options) -> (Device, Listener, SocketAddr) {
    let device = Device::with_options(options.clone()).unwrap();
    let listener = Listener::bind(&device, "127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    (device, listener, addr)
}

/// The accepting end of a connection.
pub fn accept(device: &Device, listener: &Listener, depth: usize, private_data: Vec<u8>) -> End {
    let (pd, send_cq, recv_cq, qp) = parts(device, depth);
    accept_on(device, listener, (pd, send_cq, recv_cq, qp), private_data)
}

type Parts =
    (iwarp::ProtectionDomain, iwarp::CompletionQueue, iwarp::CompletionQueue, iwarp::QueuePair);

/// The accepting end of a connection, on a queue pair that is there already.
pub fn accept_on(device: &Device, listener: &Listener, parts: Parts, private: Vec<u8>) -> End {
    let (pd, send_cq, recv_cq, qp) = parts;
    let incoming = listener.accept(Some(DEADLINE)).unwrap().expect("nobody connects");
    let params = ConnectParams { private_data: private, ..ConnectParams::default() };
    let connection = incoming.accept(&qp, &params).unwrap();
    End { device: device.clone(), pd, send_cq, recv_cq, qp, connection }
}

/// The connecting end of a connection.
pub fn dial(device: &Device, addr: SocketAddr, depth: usize) -> End {
    let (pd, send_cq, recv_cq, qp) = parts(device, depth);
    let connection = connect(device, addr, &qp, &ConnectParams::default(), DEADLINE).unwrap();
    End { device: device.clone(), pd, send_cq, recv_cq, qp, connection }
}

pub fn parts(device: &Device, depth: usize) -> Parts {
    let pd = device.alloc_pd();
    let send_cq = device.create_cq(depth * 2, None).unwrap();
    let recv_cq = device.create_cq(depth * 2, None).unwrap();
    let attributes = QueuePairAttributes {
        max_send_wr: depth,
        max_recv_wr: depth,
        max_send_sge: 32,
        max_recv_sge: 32,
        ..QueuePairAttributes::new(&send_cq, &recv_cq)
    };
    let qp = pd.create_qp(&attributes).unwrap();
    (pd, send_cq, recv_cq, qp)
}
