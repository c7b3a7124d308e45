// SPDX-License-Identifier: MIT OR Apache-2.0

//! A test with a second process: the test binary runs the test once more, as a child that learns
//! from its environment which part it plays.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use iwarp::cm::{ConnectParams, Listener, connect};
use iwarp::{Device, Options};

use super::{DEADLINE, EVENTUALLY, End, parts, within};

const ROLE: &str = "IWARP_TEST_ROLE";
/// The line of [`goes_on`].
const STEP: &str = "@goes on";

/// The name of the test function that it stands in, as the harness and [`Child::start`] know it.
#[allow(unused_macros, reason = "every test binary uses a part of it")]
macro_rules! this_test {
    () => {{
        fn here() {}
        $crate::common::process::name_around(here)
    }};
}
#[allow(unused_imports, reason = "every test binary uses a part of it")]
pub(crate) use this_test;

/// For [`this_test`]: the path of the function that `inner` stands in, without the binary's name.
pub fn name_around<F>(_inner: F) -> &'static str {
    let path = std::any::type_name::<F>();
    path.strip_suffix("::here").and_then(|path| path.split_once("::")).expect("a test").1
}

/// Which part this process plays; `None` in the one that was started by hand.
pub fn role() -> Option<String> {
    env::var(ROLE).ok()
}

/// The setting that the parent has made.
pub fn setting(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

/// The number in a variable that a user of a test may set.
pub fn number(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |number| number.parse().unwrap())
}

/// The seed in such a variable, or one by lot. The output says it.
pub fn seed(name: &str) -> u64 {
    let seed = number(name, u64::from(getrandom::u32().unwrap()));
    println!("{name}={seed}");
    seed
}

/// Runs `test` once more in a process that has nothing else to do. False in that process, true in
/// the one that started it, where the test has passed then. The process may take that time, and
/// may wait [`until`](super::until) something in vain, from its start and from each [`goes_on`] on.
pub fn passed_apart(test: &str, patience: Duration) -> bool {
    if role().is_some() {
        return false;
    }
    Child::start(test, "apart", &[]).succeeds_in_steps(patience + EVENTUALLY);
    true
}

/// The test takes a step, and the patience of [`passed_apart`] begins anew. Tests of many steps say
/// so: how long all of them take depends on the machine.
pub fn goes_on() {
    println!("\n{STEP}");
    std::io::stdout().flush().unwrap();
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
        let child = Self { child, stdin, lines };
        // The harness takes a name that no test has for a success.
        let tests =
            child.next_line("how many tests", EVENTUALLY, |line| line.strip_prefix("running "));
        assert_eq!(tests, "1 test", "{test}");
        child
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The child's word about `key`.
    pub fn hear(&self, key: &str, patience: Duration) -> String {
        self.next_line(key, patience, |line| line.strip_prefix('@')?.strip_prefix(key))
    }

    /// The result of `pick` for the next line that it picks.
    fn next_line(
        &self,
        what: &str,
        patience: Duration,
        pick: impl Fn(&str) -> Option<&str>,
    ) -> String {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    if let Some(value) = pick(&line) {
                        return value.trim().to_owned();
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("the child does not say {what} in time"),
                Err(RecvTimeoutError::Disconnected) => {
                    panic!("the child ended without saying {what}")
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
        within(patience, || "the end of the child".to_owned(), || self.child.try_wait().unwrap())
    }

    /// Waits for its end, which must be a success. No step may take longer.
    fn succeeds_in_steps(self, patience: Duration) {
        let mut deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) if line == STEP => deadline = Instant::now() + patience,
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => panic!("the child does not go on"),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.succeeds(patience);
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
    let listener = Listener::bind(&device, "127.0.0.1:0").unwrap();
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
    let params = ConnectParams::new().private_data(private);
    let connection = incoming.accept(&qp, &params).unwrap();
    End { device: device.clone(), pd, send_cq, recv_cq, qp, connection }
}

/// The connecting end of a connection.
pub fn dial(device: &Device, addr: SocketAddr, depth: usize) -> End {
    let (pd, send_cq, recv_cq, qp) = parts(device, depth);
    let connection = connect(device, addr, &qp, &ConnectParams::default(), DEADLINE).unwrap();
    End { device: device.clone(), pd, send_cq, recv_cq, qp, connection }
}
