//! Buffers that connections hold only while they need them.

use std::cell::{Cell, RefCell};

use iwarp_proto::qp::Transmit;

use crate::engine::sync::Mutex;

/// Octets of staging that a sending connection holds.
pub(crate) const TRANSMIT_STAGING: usize = 256 * 1024;
/// Octets of staging that a receiving thread lends.
pub(crate) const RECEIVE_STAGING: usize = 512 * 1024;
/// Octets of a block: any part of an FPDU there can be, so that it never grows.
const BLOCK: usize = Transmit::MIN_CAPACITY;
/// Buffers that are kept for later.
const KEPT: usize = 32;

/// Transmit queues and blocks for partial FPDUs.
#[derive(Debug)]
pub(crate) struct Pool {
    transmits: Mutex<Vec<Transmit>>,
    blocks: Mutex<Vec<Vec<u8>>>,
}

impl Pool {
    /// With a block in it: one is needed only when a read ends within an FPDU, which may happen
    /// for the first time long after traffic began.
    pub(crate) fn new() -> Self {
        let mut blocks = Vec::with_capacity(KEPT);
        blocks.push(Vec::with_capacity(BLOCK));
        Self { transmits: Mutex::new(Vec::with_capacity(KEPT)), blocks: Mutex::new(blocks) }
    }

    pub(crate) fn transmit(&self) -> Transmit {
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let kept = spare.or_else(|| self.transmits.lock().pop());
        kept.unwrap_or_else(|| Transmit::new(TRANSMIT_STAGING))
    }

    /// The thread keeps one: mostly it sends again, on whatever connection.
    pub(crate) fn give_transmit(&self, mut transmit: Transmit) {
        transmit.clear();
        let mut mine = Some(transmit);
        let _ = SPARE.try_with(|spare| mine = spare.replace(mine.take()));
        let Some(transmit) = mine else { return };
        let mut kept = self.transmits.lock();
        if kept.len() < KEPT {
            kept.push(transmit);
        }
    }

    pub(crate) fn block(&self) -> Vec<u8> {
        let kept = self.blocks.lock().pop();
        kept.unwrap_or_else(|| Vec::with_capacity(BLOCK))
    }

    pub(crate) fn give_block(&self, mut block: Vec<u8>) {
        block.clear();
        let mut kept = self.blocks.lock();
        if kept.len() < KEPT && (1..=BLOCK).contains(&block.capacity()) {
            kept.push(block);
        }
    }
}

thread_local! {
    static STAGING: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static SPARE: Cell<Option<Transmit>> = const { Cell::new(None) };
}

/// Makes what the calling thread keeps, for one that serves connections now and then: else it
/// would allocate in the midst of traffic.
pub(crate) fn prepare_thread() {
    with_staging(|_| ());
    SPARE.set(Some(Transmit::new(TRANSMIT_STAGING)));
}

/// Lends the thread's staging buffer. Not to be nested.
pub(crate) fn with_staging<R>(f: impl FnOnce(&mut [u8]) -> R) -> R {
    STAGING.with_borrow_mut(|staging| {
        if staging.is_empty() {
            // Fresh pages of zero: none is touched before it is used.
            *staging = vec![0; RECEIVE_STAGING];
        }
        f(staging)
    })
}
