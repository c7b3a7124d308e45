// SPDX-License-Identifier: MIT OR Apache-2.0

//! rsockets: stream sockets over RDMA, which hosts with a card understand as well.
//!
//! A [`Socket`] connects and moves bytes as a TCP socket does, over a queue pair of `iwarp`. Its
//! descriptor is a real one: `poll`, `select` and `epoll` of the system tell its readiness.
//!
//! ```
//! use std::net::Shutdown;
//!
//! use iwarp_rsocket::{Domain, Host, Socket};
//!
//! # fn main() -> std::io::Result<()> {
//! # let device = iwarp::Device::open().map_err(std::io::Error::other)?;
//! let host = Host::new(&device)?;
//! let listener = Socket::new(&host, Domain::Ipv4)?;
//! listener.bind("127.0.0.1:0".parse().expect("an address"))?;
//! listener.listen(8)?;
//! let addr = listener.local_addr()?;
//!
//! std::thread::scope(|scope| {
//!     scope.spawn(|| -> std::io::Result<()> {
//!         let (peer, _) = listener.accept()?;
//!         let mut text = [0; 16];
//!         let len = peer.recv(&mut text)?;
//!         peer.send_all(&text[..len])
//!     });
//!     let socket = Socket::new(&host, Domain::Ipv4)?;
//!     socket.connect(addr)?;
//!     socket.send_all(b"hello")?;
//!     socket.shutdown(Shutdown::Write)?;
//!     let mut echo = [0; 16];
//!     assert_eq!(socket.recv(&mut echo)?, 5);
//!     assert_eq!(&echo[..5], b"hello");
//!     Ok(())
//! })
//! # }
//! ```
//!
//! ```text
//!   socket       the state of a socket
//!   calls        the calls of the program, which never wait
//!   sleeping     the thread that waits
//!   blocking     calls that wait, and the end of a socket
//!   listening    connections that come in
//!   opening      connections that are being made
//!   connection   the queue pair, its memory, and what the protocol wants done
//!   shown        the descriptor shows the readiness
//!   host         the devices, and the events of their connection manager
//!   settings     sizes, from the system's files and the environment
//! ```
//!
//! The protocol itself is `iwarp-sockets`, which does no I/O. `RS-API-01` and the like are its
//! requirements, in `conformance/requirements.csv`.
#![forbid(unsafe_code)]

mod blocking;
mod calls;
mod connection;
mod host;
mod listening;
mod opening;
mod settings;
mod shown;
mod sleeping;
mod socket;

pub use host::{Devices, Host};
pub use settings::Settings;
pub use socket::{Direction, Domain, Flags, Sleep, Socket};
