// SPDX-License-Identifier: MIT OR Apache-2.0

//! The frames on the wire, in the eyes of a foreign decoder: tcpdump captures a real exchange,
//! tshark takes it apart. Needs the right to capture on loopback.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::common;
use crate::common::command;
use crate::common::server::Server;

/// The time until the end of a connection must be in the file.
const PATIENCE: Duration = Duration::from_secs(30);

const INSTALL: &str = "apt-get install tcpdump tshark, and run as root";

/// A running capture of one port on loopback.
struct Capture {
    tcpdump: Child,
    file: PathBuf,
}

impl Capture {
    /// With room for every packet: in immediate mode each takes as much of the buffer as the
    /// longest may have.
    fn start(port: &str) -> Self {
        let file = env::temp_dir().join(format!("iwarp-{}-{port}.pcap", std::process::id()));
        let mut tcpdump = Command::new("tcpdump")
            .args(["--immediate-mode", "-U", "-Z", "root", "-s", "8192"])
            .args(["-B", "65536", "-i", "lo", "-w"])
            .arg(&file)
            .args(["tcp", "port", port])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("tcpdump: {error}; {INSTALL}"));
        let stderr = tcpdump.stderr.take().expect("piped");
        let listening = BufReader::new(stderr)
            .lines()
            .map_while(Result::ok)
            .any(|line| line.contains("listening on"));
        assert!(listening, "tcpdump may not capture on loopback: {INSTALL}");
        Self { tcpdump, file }
    }

    /// Waits for both FINs to be in the file, then ends the capture. Only the first connection
    /// counts: the port may be used again by another process.
    fn end(mut self) -> Decoded {
        let deadline = Instant::now() + PATIENCE;
        let fins = ["-Y", "tcp.stream == 0 && tcp.flags.fin == 1"];
        while tshark(&self.file, &fins).lines().count() < 2 {
            let text = || tshark(&self.file, &[]);
            assert!(Instant::now() < deadline, "the connection does not end: {}", text());
            assert!(self.tcpdump.try_wait().expect("wait").is_none(), "tcpdump has ended");
        }
        self.tcpdump.kill().expect("kill");
        self.tcpdump.wait().expect("wait");
        Decoded { text: tshark(&self.file, &["-Y", "tcp.stream == 0", "-V"]) }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // All fail where it has ended in good order.
        let _ = self.tcpdump.kill();
        let _ = self.tcpdump.wait();
        let _ = fs::remove_file(&self.file);
    }
}

/// The output of tshark for a file, with its iWARP dissectors switched on.
pub(crate) fn tshark(file: &Path, arguments: &[&str]) -> String {
    let output = Command::new("tshark")
        .args(["-o", "tcp.try_heuristic_first:TRUE"])
        .args(["--disable-protocol", "smb_direct", "--disable-protocol", "rpcordma", "-r"])
        .arg(file)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("tshark: {error}; {INSTALL}"));
    // A file that is being written may end in the middle of a packet: that is not an error here.
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A capture as tshark shows it.
pub(crate) struct Decoded {
    pub(crate) text: String,
}

impl Decoded {
    pub(crate) fn count(&self, what: &str) -> usize {
        self.text.lines().filter(|line| line.contains(what)).count()
    }

    /// All of ten rounds is there.
    pub(crate) fn has_ten_rounds(&self) {
        for (opcode, least) in
            [("Write (0x0)", 10), ("Read Request (0x1)", 10), ("Read Response (0x2)", 10)]
        {
            assert!(self.count(&format!("OpCode: {opcode}")) >= least, "{opcode} of ten rounds");
        }
        assert!(self.count("OpCode: Send (0x3)") >= 40, "Sends of ten rounds");
    }
}

/// Ten rounds of rping of `size` bytes between two processes that behave as the variables say.
fn exchange(size: &str, environment: &[(&str, &str)]) -> Decoded {
    let mut listen = command(&["rping", "-s", "-p", "0", "-a", "127.0.0.1", "-S", size]);
    // Shared memory is seen on no interface.
    listen.env("IWARP_LOCAL", "off");
    let mut server = Server::start_with(listen.envs(environment.iter().copied()));
    let capture = Capture::start(&server.port);
    let client = command(&["rping", "-c", "-a", "127.0.0.1", "-p", &server.port])
        .args(["-C", "10", "-S", size, "-V"])
        .envs(environment.iter().copied())
        .output()
        .expect("the client runs");
    assert!(client.status.success(), "{}", common::stderr(&client));
    assert!(server.end().0.success());
    let decoded = capture.end();
    assert_eq!(decoded.count("Malformed"), 0, "{}", decoded.text);
    assert_eq!((decoded.count("ID Req frame:"), decoded.count("ID Rep frame:")), (1, 1));
    decoded
}

/// Covers: MPA-5044-4.1-01, MPA-5044-4.4-10
#[test]
fn tshark_takes_an_exchange_apart_and_finds_every_crc_good() {
    let decoded = exchange("3000", &[("IWARP_MULPDU", "1442")]);
    decoded.has_ten_rounds();
    assert!(decoded.count("Good CRC32") >= 70, "{}", decoded.text);
    assert_eq!(decoded.count("Bad CRC32"), 0, "{}", decoded.text);
}

/// With markers tshark 4.0 loses the thread behind a TCP segment that holds more than one FPDU.
/// Without the frame that asks for extensions, rping has one FPDU under way at a time.
///
/// Covers: MPA-5044-4.3-02
#[test]
fn tshark_takes_out_the_markers_and_finds_every_crc_good() {
    let decoded = exchange("100", &[("IWARP_MARKERS", "on"), ("IWARP_EXTENSIONS", "refuse")]);
    decoded.has_ten_rounds();
    assert!(decoded.count("Good CRC32") >= 70, "{}", decoded.text);
    assert_eq!(decoded.count("Bad CRC32"), 0, "{}", decoded.text);
}

#[test]
fn tshark_takes_an_exchange_without_crc_apart() {
    exchange("3000", &[("IWARP_MULPDU", "1442"), ("IWARP_CRC", "off")]).has_ten_rounds();
}
