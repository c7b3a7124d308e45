// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters, by the names that tools know.

/// Counters of a device, as `hw_counters` in sysfs and `rdma statistic` show them (ROCE-032).
///
/// The port counts packets; the queue pairs the rest. All wrap. Some are not counted yet, and stay
/// 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counters {
    /// Packets sent.
    pub sent_pkts: u64,
    /// Packets that came, good or not.
    pub rcvd_pkts: u64,
    /// Packets dropped because of their ICRC.
    pub bad_icrc: u64,
    /// Packets dropped that were too short, had an unknown opcode or version, or a queue pair that
    /// they cannot be for.
    pub malformed: u64,
    /// Packets dropped because there is no such queue pair.
    pub unknown_qp: u64,
    /// Packets dropped because of their P_Key; not counted yet.
    pub bad_pkey: u64,
    /// Packets dropped because of their Q_Key; not counted yet.
    pub bad_qkey: u64,
    /// Congestion notifications sent.
    pub sent_cnp: u64,
    /// Congestion notifications that came.
    pub rcvd_cnp: u64,
    /// Request packets that came again.
    pub duplicate_request: u64,
    /// Request packets that came ahead of a missing one.
    pub out_of_seq_request: u64,
    /// RNR NAKs that came.
    pub rcvd_rnr_err: u64,
    /// RNR NAKs sent.
    pub send_rnr_err: u64,
    /// NAKs for a missing packet that came.
    pub rcvd_seq_err: u64,
    /// Times that requests were sent again.
    pub completer_retry_err: u64,
    /// Timeouts for want of an acknowledgement.
    pub local_ack_timeout_err: u64,
    /// Queue pairs that gave up after too many tries; not counted yet.
    pub retry_exceeded_err: u64,
    /// Queue pairs that gave up after too many RNR NAKs; not counted yet.
    pub retry_rnr_exceeded_err: u64,
    /// Packets that the system did not take.
    pub send_err: u64,
    /// Messages sent; not counted yet.
    pub rdma_sends: u64,
    /// Messages received; not counted yet.
    pub rdma_recvs: u64,
}

macro_rules! counters {
    ($($field:ident: $name:literal),* $(,)?) => {
        impl Counters {
            /// The counters with the names of their files: rxe's for what the kernel's rxe counts
            /// as well, else mlx5's.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field)),*].into_iter()
            }

            /// Adds what another has counted.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }
        }
    };
}

counters! {
    sent_pkts: "sent_pkts",
    rcvd_pkts: "rcvd_pkts",
    bad_icrc: "rx_icrc_encapsulated",
    malformed: "rcvd_malformed",
    unknown_qp: "rcvd_unknown_qp",
    bad_pkey: "bad_pkey",
    bad_qkey: "bad_qkey",
    sent_cnp: "np_cnp_sent",
    rcvd_cnp: "rp_cnp_handled",
    duplicate_request: "duplicate_request",
    out_of_seq_request: "out_of_seq_request",
    rcvd_rnr_err: "rcvd_rnr_err",
    send_rnr_err: "send_rnr_err",
    rcvd_seq_err: "rcvd_seq_err",
    completer_retry_err: "completer_retry_err",
    local_ack_timeout_err: "local_ack_timeout_err",
    retry_exceeded_err: "retry_exceeded_err",
    retry_rnr_exceeded_err: "retry_rnr_exceeded_err",
    send_err: "send_err",
    rdma_sends: "rdma_sends",
    rdma_recvs: "rdma_recvs",
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Counters;

    /// Covers: ROCE-032
    #[test]
    fn every_counter_has_a_name_and_adds_up() {
        let mut sum = Counters { rcvd_pkts: u64::MAX, ..Counters::default() };
        sum.add(&Counters { rcvd_pkts: 3, bad_icrc: 4, ..Counters::default() });
        let names: BTreeSet<&str> = sum.named().map(|(name, _)| name).collect();
        // Each is a number of 8 octets, and the struct has no other fields.
        assert_eq!(names.len() * 8, size_of::<Counters>());
        let find = |wanted| sum.named().find(|(name, _)| *name == wanted).unwrap().1;
        assert_eq!((find("rcvd_pkts"), find("rx_icrc_encapsulated")), (2, 4));
    }
}
