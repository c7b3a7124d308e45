// SPDX-License-Identifier: MIT OR Apache-2.0

//! Changes on a host are noticed when it has changed, and once.

use iwarp_os::AddressWatch;

use crate::hosts::{self, Host};

#[test]
fn changes_are_noticed_when_they_are_made() {
    if !hosts::possible() {
        return;
    }
    let host = Host::new();
    let other = Host::new();
    host.sh("ip link add v0 type veth peer name v1");
    let watch = host.run(|| AddressWatch::new().unwrap());
    assert!(!watch.take_changes());
    for change in [
        "ip addr add 10.9.0.1/24 dev v0",
        "ip addr add fd09::1/64 dev v0",
        "ip addr del fd09::1/64 dev v0",
        "ip addr del 10.9.0.1/24 dev v0",
        "ip link set v0 mtu 1400",
        "ip link set v0 name v2",
        "ip link set lo down",
        "ip link set lo up",
        "ip link del v2",
        // More than there is room for.
        "for n in $(seq 200); do ip addr add 10.9.0.$n/24 dev lo; done",
    ] {
        host.sh(change);
        assert!(watch.take_changes(), "{change}");
        // An interface that comes up is told again a little later, and 200 addresses are many.
        let quiet = || !watch.take_changes();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !quiet() {
            assert!(std::time::Instant::now() < deadline, "{change}");
        }
    }
    other.sh("ip addr add 10.9.0.1/24 dev lo");
    assert!(!watch.take_changes(), "of another network namespace");
}
