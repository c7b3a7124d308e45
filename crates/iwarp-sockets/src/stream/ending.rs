// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of a stream: each direction by itself, then both.

use crate::wire::Control;

/// The directions that a program shuts down (`shutdown(2)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shutdown {
    /// `SHUT_RD`
    Read,
    /// `SHUT_WR`
    Write,
    /// `SHUT_RDWR`
    Both,
}

/// The last words of both ends, and the wishes of this end's program.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending {
    /// The program reads no more.
    pub(super) read_shut: bool,
    /// The program writes no more.
    pub(super) write_shut: bool,
    /// The program has let go of the socket.
    pub(super) closed: bool,
    /// The last control message sent.
    said: Option<Control>,
    /// The last control message received.
    heard: Option<Control>,
}

impl Ending {
    pub(super) fn shut(&mut self, how: Shutdown) {
        self.read_shut |= how != Shutdown::Write;
        self.write_shut |= how != Shutdown::Read;
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        self.shut(Shutdown::Both);
    }

    pub(super) fn hear(&mut self, control: Control) {
        if self.heard != Some(Control::Disconnect) {
            self.heard = Some(control);
        }
    }

    pub(super) fn say(&mut self, control: Control) {
        self.said = Some(control);
    }

    /// The control message that is due once all data are on their way (RS-CLOSE-01): one direction
    /// while the other is open, both if nothing is left of the connection.
    pub(super) fn due(&self) -> Option<Control> {
        if !self.write_shut || self.is_over() {
            return None;
        }
        if self.read_shut || self.heard == Some(Control::Shutdown) {
            return Some(Control::Disconnect);
        }
        (self.said != Some(Control::Shutdown)).then_some(Control::Shutdown)
    }

    /// True if the peer writes no more.
    pub(super) fn is_read_over(&self) -> bool {
        self.heard.is_some()
    }

    /// True if the peer has closed.
    pub(super) fn is_closed_by_peer(&self) -> bool {
        self.heard == Some(Control::Disconnect)
    }

    /// True if nothing is left to say in either direction (RS-CLOSE-02, RS-CLOSE-03).
    pub(super) fn is_over(&self) -> bool {
        let disconnect = Some(Control::Disconnect);
        self.said == disconnect
            || self.heard == disconnect
            || self.said.is_some() && self.heard.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::{Control, Ending, Shutdown};

    const DISCONNECT: Option<Control> = Some(Control::Disconnect);
    const SHUTDOWN: Option<Control> = Some(Control::Shutdown);

    fn after(steps: &[fn(&mut Ending)]) -> Ending {
        let mut ending = Ending::default();
        for step in steps {
            step(&mut ending);
        }
        ending
    }

    fn say_due(ending: &mut Ending) {
        let due = ending.due().expect("something is due");
        ending.say(due);
    }

    /// Covers: RS-CLOSE-01
    #[test]
    fn the_message_depends_on_what_is_left() {
        let due = |steps: &[fn(&mut Ending)]| after(steps).due();
        assert_eq!(due(&[]), None);
        assert_eq!(due(&[|e| e.shut(Shutdown::Write)]), SHUTDOWN);
        assert_eq!(due(&[|e| e.shut(Shutdown::Write), say_due]), None);
        assert_eq!(due(&[|e| e.hear(Control::Shutdown), |e| e.shut(Shutdown::Write)]), DISCONNECT);
        assert_eq!(due(&[|e| e.shut(Shutdown::Both)]), DISCONNECT);
        assert_eq!(due(&[Ending::close]), DISCONNECT);
        assert_eq!(due(&[|e| e.shut(Shutdown::Read)]), None);
        let both: &[fn(&mut Ending)] =
            &[|e| e.shut(Shutdown::Write), say_due, |e| e.shut(Shutdown::Read)];
        assert_eq!(due(both), DISCONNECT);
        assert_eq!(due(&[Ending::close, say_due]), None);
        assert_eq!(due(&[|e| e.hear(Control::Disconnect), Ending::close]), None);
    }

    /// Covers: RS-CLOSE-02, RS-CLOSE-03
    #[test]
    fn both_directions_end_the_connection() {
        let half = after(&[|e| e.hear(Control::Shutdown)]);
        assert!(half.is_read_over() && !half.is_over() && !half.is_closed_by_peer());
        let crossed = after(&[|e| e.shut(Shutdown::Write), say_due, |e| e.hear(Control::Shutdown)]);
        assert!(crossed.is_over() && crossed.due().is_none());
        let closed = after(&[|e| e.hear(Control::Disconnect)]);
        assert!(closed.is_read_over() && closed.is_over() && closed.is_closed_by_peer());
        let late = after(&[|e| e.hear(Control::Disconnect), |e| e.hear(Control::Shutdown)]);
        assert!(late.is_closed_by_peer(), "the last word stays");
    }
}
