// SPDX-License-Identifier: MIT OR Apache-2.0

//! The thread that waits. One at a time sleeps on the connection itself and moves it; others, and
//! those for which there is no connection yet, sleep on the descriptor.

use std::io;
use std::sync::Arc;
use std::thread;

use iwarp::Look;
use iwarp::drive::Drive;

use crate::shown::By;
use crate::socket::{Direction, Sleep, Socket, State};

impl Socket {
    /// Prepares the calling thread to wait for `direction`; `None` where there is no need. Then it
    /// sleeps on what this returns, and tries again; [`Self::end_wait`] follows its last try.
    ///
    /// # Errors
    ///
    /// `EBADF` once the socket is closed; errors of waiting, when the system is out of resources.
    pub fn prepare_wait(&self, direction: Direction) -> io::Result<Option<Sleep>> {
        let mut state = self.inner.lock();
        let is_news = state.progress();
        if state.is_ready(direction) {
            state.settle(By::Call, is_news);
            return Ok(None);
        }
        let own = thread::current().id();
        let may_sleep = state.sleeper.is_none_or(|(thread, _)| thread == own);
        let drive = state.connection().map(|connection| Arc::clone(&connection.drive));
        let Some(drive) = drive.filter(|drive| may_sleep && drive.begin_sleep()) else {
            state.has_others |= state.sleeper.is_some();
            state.settle(By::Call, is_news);
            let writable = direction == Direction::Write;
            return Ok(Some(Sleep { fd: state.number()?, writable }));
        };
        state.sleeper = Some((own, direction));
        state.settle(By::Call, is_news);
        let sleep = state.look(&drive, direction);
        if !matches!(sleep, Ok(Some(_))) {
            state.end_sleep();
        }
        sleep
    }

    /// The calling thread waits no more.
    pub fn end_wait(&self) {
        self.inner.lock().end_sleep();
    }
}

impl State {
    /// The last looks of a thread before it sleeps: `None` if it need not.
    fn look(&mut self, drive: &Drive, direction: Direction) -> io::Result<Option<Sleep>> {
        loop {
            let look = drive.look()?;
            let is_news = self.progress();
            if self.is_ready(direction) {
                return Ok(None);
            }
            if let Look::Nothing(fd) = look {
                return Ok(Some(Sleep { fd, writable: false }));
            }
            self.settle(By::Call, is_news);
        }
    }

    /// The calling thread does not sleep on the connection, which others and the descriptor hear of
    /// again.
    fn end_sleep(&mut self) {
        let own = thread::current().id();
        if self.sleeper.is_some_and(|(thread, _)| thread == own) {
            self.sleeper = None;
            if let Some(connection) = self.connection() {
                connection.drive.end_sleep();
            }
        }
        self.advance(By::Call);
    }
}
