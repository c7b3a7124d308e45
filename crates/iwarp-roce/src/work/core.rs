// SPDX-License-Identifier: MIT OR Apache-2.0

//! The contract of a core, for queue pairs that have a [`Work`](super::Work) and nothing beside it
//! that ends.

/// Implements [`Core`](iwarp_types::Core) for a type with a field `work`. Its method `$judge`
/// returns the status of a send that is not to be sent, and `$reset` clears the state outside
/// `work`.
macro_rules! work_core {
    ($type:ty, $judge:ident, $reset:ident) => {
        impl iwarp_types::Core for $type {
            type Terminated = iwarp_types::Reason;
            type Fault = iwarp_types::Reason;

            fn state(&self) -> iwarp_types::QpState {
                self.work.state()
            }

            fn modify(
                &mut self,
                to: iwarp_types::QpState,
            ) -> Result<(), iwarp_types::TransitionError> {
                self.work.modify(to)?;
                if to == iwarp_types::QpState::Reset {
                    self.$reset();
                }
                Ok(())
            }

            fn post_send(
                &mut self,
                request: &iwarp_types::SendRequest<'_>,
            ) -> Result<(), iwarp_types::PostError> {
                let refused = self.$judge(request);
                self.work.post_send(request, refused)
            }

            fn post_recv(
                &mut self,
                request: &iwarp_types::RecvRequest<'_>,
            ) -> Result<(), iwarp_types::PostError> {
                self.work.post_recv(request)
            }

            fn outstanding(&self) -> (usize, usize) {
                self.work.outstanding()
            }

            fn is_connected(&self) -> bool {
                self.work.receives()
            }

            fn disconnect(&mut self) {
                self.work.end();
            }

            fn abort(&mut self) {
                self.work.end();
            }

            fn unreachable(&mut self) {
                self.work.unreachable();
            }

            fn lost(&mut self) {
                self.work.lost();
            }

            fn fail_locally(&mut self, what: &'static str) {
                self.work.fault(what);
            }

            fn disposition(&self) -> iwarp_types::Disposition {
                match self.work.state() {
                    iwarp_types::QpState::Err => iwarp_types::Disposition::Finish,
                    _ => iwarp_types::Disposition::Open,
                }
            }

            fn wanted(&mut self) -> iwarp_types::Wanted {
                match self.work.wants_transmit() {
                    true => iwarp_types::Wanted::Much,
                    false => iwarp_types::Wanted::Nothing,
                }
            }

            fn poll_event(&mut self) -> Option<iwarp_types::Event> {
                self.work.poll_event()
            }

            fn take_refusal(&mut self) -> Option<iwarp_types::Refusal> {
                self.work.take_refusal()
            }

            fn has_events(&self) -> bool {
                self.work.has_events()
            }

            fn arrivals(&self) -> u64 {
                self.work.arrived()
            }

            fn set_remote_access(&mut self, access: iwarp_types::Access) {
                self.work.set_remote_access(access);
            }
        }
    };
}

pub(crate) use work_core;
