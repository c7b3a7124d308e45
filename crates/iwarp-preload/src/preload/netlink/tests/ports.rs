// SPDX-License-Identifier: MIT OR Apache-2.0

//! A device with several ports.

use super::*;

const TWO_PORTS: &[u8] = b"tx_bytes rx_bytes\n\
    mlx4_0 roce 1 0.1.0 1b2c3d 1b2c3c 1221880 2 eth0 1f eth1\n\
    half roce 1 0.1.0 5 6 0 0 - 3 eth2\n";

const DEVICE: (u16, u32) = (ATTR_DEV_INDEX, 0);

#[test]
fn a_device_says_how_many_ports_it_has() {
    let sent = datagrams(&request(CMD_GET, 0, &[DEVICE]), TWO_PORTS);
    assert_eq!(u32_of(messages(&sent)[0].2, ATTR_PORT_INDEX), Some(2));
}

#[test]
fn each_port_has_its_own_interface() {
    let sent = datagrams(&request(CMD_PORT_GET, NLM_F_DUMP, &[DEVICE]), TWO_PORTS);
    let all = messages(&sent);
    let [(_, _, one), (_, _, two), (NLMSG_DONE, ..)] = all[..] else { panic!("{all:?}") };
    for (body, number, index, name) in [(one, 1, 2, "eth0"), (two, 2, 0x1f, "eth1")] {
        assert_eq!(u32_of(body, ATTR_PORT_INDEX), Some(number));
        assert_eq!(
            (u32_of(body, ATTR_NDEV_INDEX), text(body, ATTR_NDEV_NAME)),
            (Some(index), name)
        );
    }
    let asked = [(ATTR_DEV_INDEX, 0), (ATTR_PORT_INDEX, 2)];
    let sent = datagrams(&request(CMD_PORT_GET, 0, &asked), TWO_PORTS);
    assert_eq!(text(messages(&sent)[0].2, ATTR_NDEV_NAME), "eth1");
    for wrong in [0, 3, u32::MAX] {
        let asked = [(ATTR_DEV_INDEX, 0), (ATTR_PORT_INDEX, wrong)];
        let sent = datagrams(&request(CMD_PORT_GET, 0, &asked), TWO_PORTS);
        assert_eq!(errno(messages(&sent)[0].2), EINVAL);
    }
    // A port whose interface has no address.
    let sent = datagrams(&request(CMD_PORT_GET, NLM_F_DUMP, &[(ATTR_DEV_INDEX, 1)]), TWO_PORTS);
    let all = messages(&sent);
    assert_eq!(attribute(all[0].2, ATTR_NDEV_NAME), None);
    assert_eq!(text(all[1].2, ATTR_NDEV_NAME), "eth2");
}

#[test]
fn counters_are_those_of_the_port_that_is_named() {
    let asked = [DEVICE, (ATTR_PORT_INDEX, 2)];
    let sent = datagrams(&request(CMD_STAT_GET, 0, &asked), TWO_PORTS);
    let body = messages(&sent)[0].2;
    assert_eq!(u32_of(body, ATTR_PORT_INDEX), Some(2));
    let table = entries(attribute(body, ATTR_STAT_HWCOUNTERS).expect("counters"));
    assert_eq!(u64_of(table[1], ATTR_STAT_HWCOUNTER_ENTRY_VALUE), Some(21));
}

#[test]
fn objects_of_one_port_are_listed_alone() {
    let count = |command, numbers: &[(u16, u32)]| {
        messages(&datagrams(&request(command, NLM_F_DUMP, numbers), TWO_PORTS)).len() - 1
    };
    for command in [CMD_RES_QP_GET, CMD_RES_CM_ID_GET] {
        assert_eq!(count(command, &[DEVICE]), 1);
        assert_eq!(count(command, &[DEVICE, (ATTR_PORT_INDEX, 1)]), 1);
        assert_eq!(count(command, &[DEVICE, (ATTR_PORT_INDEX, 2)]), 0);
    }
    assert_eq!(count(CMD_RES_MR_GET, &[DEVICE, (ATTR_PORT_INDEX, 2)]), 1);
}
