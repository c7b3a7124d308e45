// SPDX-License-Identifier: MIT OR Apache-2.0

//! The programs of a soak: their command lines, and their output.

use super::faults::Fault;
use crate::programs::clock::Measurement;
use crate::programs::lab::Side;
use crate::programs::table::Personality;

/// The programs that move data in an episode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    /// Ours, to the server that lives as long as the soak.
    Resident { threads: u64, rounds: u64 },
    /// Ours, to a server of its own.
    Own { threads: u64, rounds: u64 },
    /// Ours, with so many connections that the descriptors of one end do not suffice.
    Crowd { files: u64, threads: u64 },
    /// One of [`PROGRAMS`].
    Program(usize),
}

/// A program that others wrote, or a command of ours.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: &'static str,
    /// `SERVER` stands for the server's address, `PORT` for a free port.
    pub(super) server: &'static str,
    pub(super) client: &'static str,
    pub(super) only: Option<Personality>,
    /// On no device does it end when its server has gone: it spins on bytes that the peer is to
    /// write (ib_write_lat), or waits for one more completion after one in error (fio).
    pub(super) deaf: bool,
    /// Bytes that go over the connection in a run, and that are compared on arrival.
    pub(super) sent: u64,
    pub(super) verified: u64,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// All of them.
pub(super) const PROGRAMS: &[Program] = &[
    Program {
        name: "rping",
        server: "rping -s -a SERVER -p PORT -V -C 1000 -S 20000",
        client: "rping -c -a SERVER -p PORT -V -C 1000 -S 20000",
        only: None,
        deaf: false,
        sent: 1000 * 2 * 20_000,
        verified: 1000 * 20_000,
    },
    Program {
        name: "rping, iwarp rping",
        server: "iwarp rping -s -a SERVER -p PORT -S 3000",
        client: "rping -c -a SERVER -p PORT -V -C 1500 -S 3000",
        only: None,
        deaf: false,
        sent: 1500 * 2 * 3000,
        verified: 1500 * 3000,
    },
    Program {
        name: "iwarp rping, rping",
        server: "rping -s -a SERVER -p PORT -C 400 -S 60000",
        client: "iwarp rping -c -a SERVER -p PORT -V -C 400 -S 60000",
        only: None,
        deaf: false,
        sent: 400 * 2 * 60_000,
        verified: 400 * 60_000,
    },
    Program {
        name: "fio",
        server: "fio --name=job --ioengine=rdma --port=PORT --bs=64k --size=16m --minimal --thread \
                 --verify=crc32c --rw=read --iodepth=16",
        client: "fio --name=job --ioengine=rdma --port=PORT --bs=64k --size=16m --minimal --thread \
                 --verify=crc32c --do_verify=0 --rw=write --hostname=SERVER --verb=send --iodepth=1",
        // It sends without knowing whether the other end has a receive.
        only: Some(Personality::Roce),
        deaf: true,
        sent: 16 * MIB,
        verified: 16 * MIB,
    },
    Program {
        name: "ibv_rc_pingpong",
        server: "ibv_rc_pingpong -g 0 -c -n 1000 -s 8192 -p PORT",
        client: "ibv_rc_pingpong -g 0 -c -n 1000 -s 8192 -p PORT SERVER",
        only: None,
        deaf: false,
        sent: 1000 * 2 * 8192,
        // It compares what the last message left.
        verified: 2 * 8192,
    },
    perftest(
        "ib_write_bw",
        "ib_write_bw -p PORT -q 2 -n 400 -s 65536",
        "ib_write_bw -p PORT -q 2 -n 400 -s 65536 SERVER",
        2 * 400 * 64 * KIB,
    ),
    perftest(
        "ib_write_bw -R",
        "ib_write_bw -p PORT -R -n 400 -s 65536",
        "ib_write_bw -p PORT -R -n 400 -s 65536 SERVER",
        400 * 64 * KIB,
    ),
    perftest(
        "ib_read_bw",
        "ib_read_bw -p PORT -n 400 -s 65536",
        "ib_read_bw -p PORT -n 400 -s 65536 SERVER",
        400 * 64 * KIB,
    ),
    perftest(
        "ib_send_bw -b",
        "ib_send_bw -p PORT -b -n 500 -s 32768",
        "ib_send_bw -p PORT -b -n 500 -s 32768 SERVER",
        2 * 500 * 32 * KIB,
    ),
    perftest(
        "ib_send_lat -R",
        "ib_send_lat -p PORT -R -n 4000 -s 64",
        "ib_send_lat -p PORT -R -n 4000 -s 64 SERVER",
        2 * 4000 * 64,
    ),
    Program {
        name: "ib_write_lat",
        server: "ib_write_lat -p PORT -n 4000 -s 256",
        client: "ib_write_lat -p PORT -n 4000 -s 256 SERVER",
        only: None,
        deaf: true,
        sent: 2 * 4000 * 256,
        verified: 0,
    },
    perftest(
        "ib_atomic_bw",
        "ib_atomic_bw -p PORT -n 4000 -A FETCH_AND_ADD",
        "ib_atomic_bw -p PORT -n 4000 -A FETCH_AND_ADD SERVER",
        4000 * 8,
    ),
];

const fn perftest(
    name: &'static str,
    server: &'static str,
    client: &'static str,
    sent: u64,
) -> Program {
    Program { name, server, client, only: None, deaf: false, sent, verified: 0 }
}

impl Traffic {
    /// For the table.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Resident { .. } => "traffic, resident server",
            Self::Own { .. } => "traffic, own server",
            Self::Crowd { .. } => "traffic, crowd",
            Self::Program(number) => PROGRAMS[*number].name,
        }
    }

    /// For the line of an episode.
    pub(super) fn told(&self) -> String {
        match self {
            Self::Resident { threads, rounds } | Self::Own { threads, rounds } => {
                format!("{}, {threads} x {rounds} rounds", self.name())
            }
            Self::Crowd { files, threads } => {
                format!("{} of {threads} for {files} descriptors", self.name())
            }
            Self::Program(_) => self.name().to_owned(),
        }
    }

    /// The least time that it takes, more or less.
    pub(super) fn lasts_ms(&self) -> u64 {
        match self {
            Self::Resident { rounds, .. } | Self::Own { rounds, .. } => rounds.div_ceil(2),
            Self::Crowd { .. } => 300,
            Self::Program(_) => 700,
        }
    }

    /// With less to move, where the network is slow.
    pub(super) fn lighter(self) -> Self {
        let fewer = |rounds: u64| rounds.div_ceil(6);
        match self {
            Self::Resident { threads, rounds } => Self::Resident { threads, rounds: fewer(rounds) },
            Self::Own { threads, rounds } => Self::Own { threads, rounds: fewer(rounds) },
            other => other,
        }
    }

    /// True if there is something to learn from the fault: other people's programs check nothing of
    /// what they tell each other by TCP beside their RDMA connection, and wait there for ever; and
    /// the resident server stays.
    pub(super) fn bears(&self, fault: &Fault) -> bool {
        match self {
            Self::Resident { .. } => *fault != Fault::Kill(Side::Server),
            Self::Program(number) => match fault {
                Fault::Lost | Fault::Reset(_) | Fault::Forged(_) => false,
                Fault::Kill(Side::Server) => !PROGRAMS[*number].deaf,
                _ => true,
            },
            Self::Own { .. } | Self::Crowd { .. } => true,
        }
    }

    /// The command of a server of its own.
    pub(super) fn server(&self, port: u16) -> Option<String> {
        match self {
            Self::Resident { .. } => None,
            Self::Own { .. } | Self::Crowd { .. } => Some(format!("traffic serve SERVER {port}")),
            Self::Program(number) => Some(with_port(PROGRAMS[*number].server, port)),
        }
    }

    /// The command of the client.
    pub(super) fn client(&self, port: u16, seed: u64) -> String {
        match self {
            Self::Resident { threads, rounds } | Self::Own { threads, rounds } => {
                format!("traffic ask SERVER {port} {seed} {rounds} {threads}")
            }
            Self::Crowd { threads, .. } => {
                format!("traffic ask SERVER {port} {seed} 20 {threads}")
            }
            Self::Program(number) => with_port(PROGRAMS[*number].client, port),
        }
    }

    /// The measurement that its programs make.
    pub(super) fn measures(&self) -> Option<Measurement> {
        match self {
            Self::Program(number) => Measurement::of(PROGRAMS[*number].client),
            Self::Resident { .. } | Self::Own { .. } | Self::Crowd { .. } => None,
        }
    }

    /// True if its server ends with the client.
    pub(super) fn server_ends(&self) -> bool {
        matches!(self, Self::Program(_))
    }
}

fn with_port(text: &str, port: u16) -> String {
    text.replace("PORT", &port.to_string())
}

/// The sum of the lines of `traffic`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) done: u64,
    pub(super) ended: u64,
    pub(super) refused: u64,
    pub(super) messages: u64,
    pub(super) octets: u64,
}

/// Reads the lines of `traffic`; those of other programs say nothing here.
pub(super) fn said(text: &str) -> Said {
    let mut sum = Said::default();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ["server" | "client", outcome, "messages", messages, "octets", octets, ..] = words[..]
        else {
            continue;
        };
        match outcome {
            "done" => sum.done += 1,
            "ended" => sum.ended += 1,
            "refused" => sum.refused += 1,
            // `suspicious` has these.
            _ => {}
        }
        sum.messages += messages.parse::<u64>().unwrap_or(0);
        sum.octets += octets.parse::<u64>().unwrap_or(0);
    }
    sum
}

/// The first line that no fault explains.
pub(super) fn suspicious(text: &str) -> Option<&str> {
    // Ours, rping's, fio's, ibv_rc_pingpong's, and what panics, aborts and sanitizers say.
    const NEVER: &[&str] = &[
        "WRONG",
        " hang ",
        "data mismatch",
        "mismatched",
        "verify:",
        "bad magic header",
        "invalid data",
        "panicked",
        "assertion",
        "Assertion",
        "memory allocation of",
        "double free",
        "corrupted",
        "Sanitizer",
        "internal error",
    ];
    text.lines().find(|line| NEVER.iter().any(|words| line.contains(words)))
}

#[cfg(test)]
mod tests {
    use super::{Measurement, PROGRAMS, Said, Traffic, said, suspicious};

    #[test]
    fn lines_add_up() {
        let text = "listening\nserver done messages 3 octets 40 seed 7 \n\
                    server ended messages 1 octets 2 seed 8 Work Request Flushed Error\n";
        assert_eq!(said(text), Said { done: 1, ended: 1, refused: 0, messages: 4, octets: 42 });
        assert_eq!(suspicious(text), None);
        assert!(suspicious("x\nclient WRONG messages 1 octets 2 seed 3 read of round 4").is_some());
    }

    #[test]
    fn perftest_is_all_that_measures() {
        for (number, program) in PROGRAMS.iter().enumerate() {
            let clock = program.name.starts_with("ib_").then_some(Measurement::Clock);
            assert_eq!(Traffic::Program(number).measures(), clock, "{}", program.name);
        }
        assert_eq!(Traffic::Own { threads: 1, rounds: 1 }.measures(), None);
    }
}
