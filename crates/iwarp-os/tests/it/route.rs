// SPDX-License-Identifier: MIT OR Apache-2.0

//! Routes by a certain interface, of a host with two in one subnet.

use std::net::IpAddr;

use iwarp_os::{addr, route};

use crate::hosts::{Host, possible};

#[test]
fn a_way_leads_by_an_interface_where_the_routes_have_one() {
    if !possible() {
        return;
    }
    let [host, peer] = Host::pair();
    host.cable(&peer, "v1", 1);
    host.sh("ip addr add 10.9.0.11/24 dev v1; ip addr add fd09::11/64 dev v1 nodad");
    host.sh("ip route add default via 10.9.0.2; ip -6 route add default via fd09::2 dev v0");
    host.run(|| {
        let there = addr::interfaces().unwrap();
        let index = |name: &str| there.iter().find(|one| one.name == name).unwrap().index;
        let leads = |name: &str, from: &str, to: &str| {
            let [from, to] = [from, to].map(|ip| ip.parse::<IpAddr>().unwrap());
            route::leads_by(index(name), from, to).unwrap()
        };
        for (two, one, near, far) in [
            ("10.9.0.11", "10.9.0.1", "10.9.0.2", "192.0.2.9"),
            ("fd09::11", "fd09::1", "fd09::2", "2001:db8::9"),
        ] {
            // The routes prefer v0.
            assert!(leads("v1", two, near) && leads("v0", one, near), "{near}");
            assert!(leads("v0", one, far) && !leads("v1", two, far), "{far}");
        }
    });
    host.sh("ip route add unreachable 203.0.113.0/24");
    host.run(|| {
        let [from, to] = ["10.9.0.11", "203.0.113.1"].map(|ip| ip.parse().unwrap());
        let there = addr::interfaces().unwrap();
        let v1 = there.iter().find(|one| one.name == "v1").unwrap().index;
        assert!(!route::leads_by(v1, from, to).unwrap());
    });
}
