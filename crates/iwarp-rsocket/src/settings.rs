// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sizes of sockets that set none themselves: the system's files of rsocket(7), and variables
//! for users who cannot write those.

use std::fs;
use std::path::Path;
use std::time::Duration;

use iwarp_os::environment;
use iwarp_sockets::wire::IomapSize;

/// The folder of the files.
const FOLDER: &str = "/etc/rdma/rsocket";
/// The shortest send buffer; a shorter one gets [`LEAST_INSTEAD`].
const LEAST_BUFFER: u64 = 2048;
const LEAST_INSTEAD: u64 = 4096;
/// The longest queue that can be asked for.
const LONGEST_QUEUE: u64 = 65_534;
/// The shortest queue that works.
const SHORTEST_QUEUE: u64 = 16;
/// The longest buffer: lengths on the wire have 29 bits.
const LONGEST_BUFFER: u64 = 1 << 28;
/// The most inline data.
const MOST_INLINE: u64 = 1024;
/// The largest iomap table (RS-WIRE-06).
const LARGEST_IOMAP: u64 = 127 * 256;

/// The sizes of a socket's queues and buffers.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Bytes of the receive ring.
    pub receive_buffer: u32,
    /// Bytes of the send buffer.
    pub send_buffer: u32,
    /// Requests of the send queue.
    pub send_queue: u16,
    /// Receives for data that the peer is told of.
    pub receive_queue: u16,
    /// Bytes of inline data, which is kept for the program to read.
    pub inline: u32,
    /// Regions that the peer may map.
    pub iomap: u32,
    /// Time without traffic after which a keepalive goes out, where the program asks for them.
    pub keepalive: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            receive_buffer: 128 << 10,
            send_buffer: 128 << 10,
            send_queue: 384,
            receive_queue: 384,
            inline: 64,
            iomap: 0,
            keepalive: Duration::from_secs(7200),
        }
    }
}

/// A file with one number, and the variable that goes before it.
struct Entry {
    file: &'static str,
    variable: &'static str,
    least: u64,
    most: u64,
}

const MEM: Entry =
    Entry { file: "mem_default", variable: "IWARP_RSOCKET_RCVBUF", least: 2, most: LONGEST_BUFFER };
const WMEM: Entry = Entry {
    file: "wmem_default",
    variable: "IWARP_RSOCKET_SNDBUF",
    least: 1,
    most: LONGEST_BUFFER,
};
const SQSIZE: Entry = Entry {
    file: "sqsize_default",
    variable: "IWARP_RSOCKET_SQSIZE",
    least: SHORTEST_QUEUE,
    most: LONGEST_QUEUE,
};
const RQSIZE: Entry = Entry {
    file: "rqsize_default",
    variable: "IWARP_RSOCKET_RQSIZE",
    least: SHORTEST_QUEUE,
    most: LONGEST_QUEUE,
};
const INLINE: Entry =
    Entry { file: "inline_default", variable: "IWARP_RSOCKET_INLINE", least: 0, most: MOST_INLINE };
const IOMAP: Entry =
    Entry { file: "iomap_size", variable: "IWARP_RSOCKET_IOMAP", least: 0, most: LARGEST_IOMAP };

impl Settings {
    /// The sizes of this system's files and of the environment (RS-CFG-01, RS-CFG-03). A value out
    /// of range is put into it, with a line in the log.
    pub fn of_system() -> Self {
        Self::of(Path::new(FOLDER), &|name| environment::variable(name))
    }

    /// Has the peer map so many regions, or the next larger number that can be told (RS-OPT-03).
    pub fn set_iomap(&mut self, entries: u32) {
        self.iomap = IomapSize::covering(entries as usize).entries();
    }

    fn of(folder: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let number = |entry: &Entry| {
            let (name, text) = match variable(entry.variable) {
                Some(text) => (entry.variable.to_owned(), text),
                None => {
                    let path = folder.join(entry.file);
                    let text = fs::read_to_string(&path).ok()?;
                    (path.display().to_string(), text)
                }
            };
            let asked = leading_number(&text)?;
            let used = asked.clamp(entry.least, entry.most);
            if used != asked {
                let Entry { least, most, .. } = entry;
                tracing::warn!(
                    "{name} says {asked}, which is not from {least} to {most}: {used} is used"
                );
            }
            Some(used)
        };
        let mut this = Self::default();
        let short = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
        let long = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
        if let Some(bytes) = number(&MEM) {
            this.receive_buffer = long(bytes);
        }
        if let Some(bytes) = number(&WMEM) {
            this.send_buffer = long(if bytes < LEAST_BUFFER { LEAST_INSTEAD } else { bytes });
        }
        if let Some(length) = number(&SQSIZE) {
            this.send_queue = short(length);
        }
        if let Some(length) = number(&RQSIZE) {
            this.receive_queue = short(length);
        }
        if let Some(bytes) = number(&INLINE) {
            this.inline = long(bytes);
        }
        if let Some(entries) = number(&IOMAP) {
            this.set_iomap(long(entries));
        }
        let idle = fs::read_to_string("/proc/sys/net/ipv4/tcp_keepalive_time");
        if let Some(seconds) =
            idle.ok().as_deref().and_then(leading_number).filter(|idle| *idle > 0)
        {
            this.keepalive = Duration::from_secs(seconds);
        }
        this
    }
}

/// The number at the start of a text, as `fscanf` reads it.
fn leading_number(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("rsocket-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Covers: RS-CFG-01, RS-CFG-02
    #[test]
    fn files_set_the_sizes() {
        let folder = Folder::new("files");
        let files = [
            ("mem_default", "65536\n"),
            ("wmem_default", "1000"),
            ("sqsize_default", "3"),
            ("rqsize_default", "100000"),
            ("inline_default", "nothing"),
        ];
        for (name, text) in files {
            fs::write(folder.0.join(name), text).unwrap();
        }
        let settings = Settings::of(&folder.0, &|_| None);
        assert_eq!((settings.receive_buffer, settings.send_buffer), (65536, 4096));
        assert_eq!((settings.send_queue, settings.receive_queue), (16, 65_534));
        assert_eq!((settings.inline, settings.iomap), (64, 0));
    }

    /// Covers: RS-CFG-03
    #[test]
    fn a_variable_goes_before_its_file() {
        let folder = Folder::new("variables");
        fs::write(folder.0.join("iomap_size"), "3").unwrap();
        let variable = |name: &str| (name == "IWARP_RSOCKET_IOMAP").then(|| "12".to_owned());
        assert_eq!(Settings::of(&folder.0, &variable).iomap, 12);
        assert_eq!(Settings::of(&folder.0, &|_| None).iomap, 3);
    }

    #[test]
    fn a_number_is_read_as_far_as_it_goes() {
        let of = leading_number;
        assert_eq!((of(" 12 KiB"), of("x"), of("")), (Some(12), None, None));
    }
}
