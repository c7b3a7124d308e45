//! Who moves the octets, and when.
//!
//! The caller's thread wherever it can: posting sends, polling an empty completion queue
//! receives, a blocking wait waits on the sockets themselves. One worker thread per device moves
//! whatever nobody drives, so that a peer's one-sided operation is served while the program
//! computes. The connections of a completion queue form a [`group::Group`]; [`handover`] decides
//! whether its callers or the worker look after it.
//!
//! ```text
//!   endpoint   a queue pair's core behind its lock, and where its completions go
//!   link       one stream of it: receive half and transmit half, each with a token
//!   group      the poll group of a completion queue
//!   worker     the thread that serves what nobody drives; timers
//!   stream     the octet stream under a link
//!   live       the connections there are, for the end of the process
//! ```

pub(crate) mod endpoint;
pub(crate) mod group;
pub(crate) mod handover;
pub(crate) mod link;
pub(crate) mod live;
pub(crate) mod options;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod sync;
pub(crate) mod token;
pub(crate) mod worker;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use iwarp_mem::MemoryTable;
use iwarp_proto::types::Time;

use live::Live;
use options::Options;
use pool::Pool;
use worker::Worker;

/// What the objects of one device share.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) memory: Arc<MemoryTable>,
    pub(crate) options: Options,
    pub(crate) pool: Pool,
    pub(crate) worker: Arc<Worker>,
    pub(crate) live: Arc<Live>,
    next_pd: AtomicU32,
    next_qp: AtomicU32,
}

impl Engine {
    pub(crate) fn new(options: Options) -> io::Result<Self> {
        Ok(Self {
            memory: Arc::new(MemoryTable::new()),
            worker: Worker::start(&options)?,
            pool: Pool::new(),
            live: Live::new(),
            options,
            next_pd: AtomicU32::new(1),
            next_qp: AtomicU32::new(1),
        })
    }

    pub(crate) fn next_pd(&self) -> u32 {
        self.next_pd.fetch_add(1, Ordering::Relaxed)
    }

    /// A queue pair number of 24 bits, as verbs programs expect.
    pub(crate) fn next_qp(&self) -> u32 {
        loop {
            let number = self.next_qp.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff;
            if number > 1 {
                return number;
            }
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.worker.stop();
    }
}

/// The time, as the protocol core takes it.
pub(crate) fn now() -> Time {
    Time(iwarp_os::clock::now())
}
