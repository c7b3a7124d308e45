// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cores of queue pairs, of either wire.
//!
//! A queue pair of the type RC begins with iWARP's core. If packets can reach its number, it has a
//! choice, and may go on with RoCE v2's. Queue pairs of other types have packets only.

use std::any::Any;
use std::sync::Weak;

use iwarp_types::{QpState, QpType};

use crate::engine::endpoint::{Choice, CoreConfig, EndpointCore, PacketListener};
use crate::engine::options::Options;
use crate::wire::iwarp::core::{self as iwarp, Qp};
use crate::wire::roce::prospect::{self as roce, Prospect};

/// A core, and the choice that its queue pair has.
pub(crate) type Begun = (Box<dyn EndpointCore>, Option<Box<dyn Choice>>);

/// The core that a queue pair of this type begins with. `packets`: some can reach its number.
/// `None` for a type that no wire has.
pub(crate) fn begin(options: &Options, config: &CoreConfig, packets: bool) -> Option<Begun> {
    if config.qp_type != QpType::Rc {
        return Some((Box::new(roce::core(config)?), None));
    }
    let iwarp = iwarp::config(options, config);
    let choice = packets.then(|| {
        let roce = Prospect::new(config);
        Box::new(Either { roce, stream: None }) as Box<dyn Choice>
    });
    Some((Box::new(Qp::new(iwarp)), choice))
}

/// iWARP, or RoCE v2 if the peer speaks nothing else.
#[derive(Debug)]
struct Either {
    roce: Prospect,
    /// iWARP's core, while RoCE v2's has its place.
    stream: Option<Box<dyn EndpointCore>>,
}

impl Choice for Either {
    fn packets(&mut self, core: &mut dyn EndpointCore) -> Option<Box<dyn EndpointCore>> {
        let state = core.state();
        if state == QpState::Err {
            return None;
        }
        let iwarp = core.of::<Qp>()?;
        let mut roce = self.roce.core(state, iwarp.remote_access());
        iwarp.hand_over(&mut roce).then(|| Box::new(roce) as Box<dyn EndpointCore>)
    }

    fn keep(&mut self, stream: Box<dyn EndpointCore>) {
        self.stream = Some(stream);
    }

    fn stream(&mut self) -> Option<Box<dyn EndpointCore>> {
        let mut stream = self.stream.take()?;
        // Every state may become Reset, which forgets everything.
        stream.modify(QpState::Reset).is_ok().then_some(stream)
    }

    fn listen(&mut self, listener: Weak<dyn PacketListener>) {
        self.roce.listen(listener);
    }

    fn ask(&mut self) -> bool {
        self.roce.ask()
    }

    fn is_listening(&self) -> bool {
        self.roce.is_listening()
    }

    fn stop_listening(&mut self) {
        self.roce.stop_listening();
    }

    fn part(&mut self) -> &mut dyn Any {
        &mut self.roce
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use iwarp_types::{Limits, PdId, QpId};

    use super::*;
    use crate::engine::options::Wire;

    fn config(qp_type: QpType) -> CoreConfig {
        CoreConfig {
            qp: QpId(17),
            pd: PdId(1),
            qp_type,
            max_send_wr: 4,
            max_recv_wr: 4,
            limits: Limits { max_send_sge: 1, max_inline: 0 },
            max_recv_sge: 1,
            shared_receive: false,
            receive_pd: None,
        }
    }

    #[test]
    fn each_type_begins_with_the_wire_that_has_it() {
        let rows = [
            (QpType::Rc, false, Some((Wire::Iwarp, false))),
            (QpType::Rc, true, Some((Wire::Iwarp, true))),
            (QpType::Uc, true, Some((Wire::Roce, false))),
            (QpType::Ud, true, Some((Wire::Roce, false))),
        ];
        for (qp_type, packets, expected) in rows {
            let begun = begin(&Options::new(), &config(qp_type), packets);
            let found = begun.map(|(core, choice)| (core.wire().unwrap(), choice.is_some()));
            assert_eq!(found, expected, "{qp_type:?}, packets: {packets}");
        }
    }

    #[test]
    fn a_choice_leads_to_the_state_that_the_queue_pair_is_in_and_not_out_of_an_error() {
        let steps = [QpState::Init, QpState::Rtr, QpState::Rts, QpState::Err];
        let (mut core, choice) = begin(&Options::new(), &config(QpType::Rc), true).unwrap();
        let mut choice = choice.unwrap();
        for state in steps {
            core.modify(state).unwrap();
            let other = choice.packets(&mut *core);
            let found = other.map(|other| (other.wire().unwrap(), other.state()));
            let expected = (state != QpState::Err).then_some((Wire::Roce, state));
            assert_eq!(found, expected, "{state:?}");
        }
        assert!(choice.stream().is_none(), "nothing was kept");
        choice.keep(core);
        assert_eq!(choice.stream().unwrap().state(), QpState::Reset);
    }
}
