// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connection manager: makes and ends connections (RFC 5044 §7, RFC 6581).
//!
//! It has two layers. [`Id`], [`EventChannel`] and [`Event`] are those of `librdmacm`: every step
//! is asynchronous and ends in an event. [`connect`] and [`Listener`] block, and suit most
//! programs. Programs that have no reason to post work requests themselves find less to do in
//! `iwarp-session`, which connects by itself.
//!
//! A connection joins two queue pairs, which each end makes beforehand. Both ends may say something
//! with it, the private data: a version, or where memory is that the peer may read.
//!
//! ```
//! use std::time::Duration;
//!
//! use iwarp::cm::{self, ConnectParams, Listener};
//! use iwarp::{Access, CompletionQueue, Device, QueuePairAttributes};
//! use iwarp::{RecvRequest, SendRequest, WcStatus, WorkCompletion};
//!
//! const PATIENCE: Duration = Duration::from_secs(5);
//!
//! /// Polling is the fastest way to wait; `CompletionChannel` shows how a thread sleeps.
//! fn next(cq: &CompletionQueue) -> WorkCompletion {
//!     loop {
//!         match cq.poll_one() {
//!             Some(completion) => return completion,
//!             None => std::hint::spin_loop(),
//!         }
//!     }
//! }
//!
//! fn serve(device: &Device, listener: &Listener) -> Result<(), Box<dyn std::error::Error>> {
//!     let (pd, cq) = (device.alloc_pd(), device.create_cq(8, None)?);
//!     let qp = pd.create_qp(&QueuePairAttributes::new(&cq, &cq))?;
//!     let inbox = pd.allocate(64, Access::LOCAL_WRITE)?;
//!     // Before the connection is up: the peer may send at once.
//!     qp.post_recv(&RecvRequest::new(1, &[inbox.whole()]))?;
//!
//!     let request = listener.accept(Some(PATIENCE))?.ok_or("nobody came")?;
//!     assert_eq!(request.private_data(), b"version 1");
//!     let connection = request.accept(&qp, &ConnectParams::default())?;
//!     let message = next(&cq);
//!     assert_eq!((message.wr_id, message.status), (1, WcStatus::Success));
//!     let mut text = [0; 5];
//!     inbox.buffer().ok_or("the library allocated it")?.read_at(0, &mut text);
//!     assert_eq!(&text, b"hello");
//!     connection.wait_disconnected(Some(PATIENCE));
//!     Ok(())
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::open()?;
//! let listener = Listener::bind(&device, "127.0.0.1:0")?;
//! let addr = listener.local_addr().ok_or("no address")?;
//! std::thread::scope(|scope| {
//!     let server = scope.spawn(|| serve(&device, &listener).expect("it serves"));
//!
//!     let (pd, cq) = (device.alloc_pd(), device.create_cq(8, None)?);
//!     let qp = pd.create_qp(&QueuePairAttributes::new(&cq, &cq))?;
//!     let memory = pd.allocate(64, Access::LOCAL_WRITE)?;
//!     memory.buffer().ok_or("the library allocated it")?.write_at(0, b"hello");
//!
//!     let params = ConnectParams::new().private_data(b"version 1".to_vec());
//!     let connection = cm::connect(&device, addr, &qp, &params, PATIENCE)?;
//!     qp.post_send(&SendRequest::send(2, &[memory.sge(0, 5)]).signaled())?;
//!     // Until then the memory belongs to the operation.
//!     assert_eq!(next(&cq).status, WcStatus::Success);
//!     connection.disconnect();
//!     server.join().expect("the server does not panic");
//!     Ok(())
//! })
//! # }
//! ```

mod addresses;
mod blocking;
mod channel;
mod events;
mod id;
mod made;
mod turns;

pub use addresses::Addresses;
pub use blocking::{Connection, Incoming, Listener, connect};
pub use channel::{Event, EventChannel};
pub use id::{Id, PortSpace};
pub use iwarp_types::{StartupError, StartupFault};

pub use crate::connect::{ConnectError, ConnectParams, ConnectionState, EventKind};
pub use crate::wire::choice::UDP_QKEY;
