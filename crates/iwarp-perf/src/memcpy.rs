// SPDX-License-Identifier: MIT OR Apache-2.0

//! The speed of the machine's memory: copies within one process, over and over between two blocks
//! of a message's size, which stay in the caches as far as they fit.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::octets::{self, Messages};
use super::task::{Contender, Flow, Side, Task, Times};

/// The client's; the server's does nothing.
#[derive(Default)]
pub(super) struct Memcpy {
    messages: Messages,
    sink: Vec<u8>,
}

impl Contender for Memcpy {
    fn prepare(&mut self, task: &Task, side: Side) -> Result<()> {
        ensure!(task.flow == Flow::Stream, "memcpy does not measure {:?}", task.flow);
        if side == Side::Server {
            return Ok(());
        }
        self.messages.prepare(task, task.size);
        octets::clear(&mut self.sink, task.size);
        Ok(())
    }

    fn measure(&mut self, task: &Task, _: &mut Times) -> Result<Duration> {
        let start = Instant::now();
        for _ in 1..task.count {
            // Otherwise the compiler might leave out all but one.
            black_box(&mut self.sink).copy_from_slice(black_box(self.messages.get(false)));
        }
        self.sink.copy_from_slice(self.messages.get(true));
        Ok(start.elapsed())
    }

    fn serve(&mut self, _: &Task) -> Result<()> {
        Ok(())
    }

    fn verify(&mut self, task: &Task, side: Side) -> Result<()> {
        if side == Side::Client { octets::verify(task, &self.sink) } else { Ok(()) }
    }
}
