// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists of objects.

use super::*;

/// The entries of the lists of all objects of a kind.
fn listed(sent: &[Vec<u8>], kind: u16) -> Vec<&[u8]> {
    let messages = messages(sent);
    let (end, lists) = messages.split_last().expect("an end");
    assert_eq!((end.0, errno(end.2)), (NLMSG_DONE, 0));
    let mut found = Vec::new();
    for (_, flags, body) in lists {
        assert_eq!((*flags, text(body, ATTR_DEV_NAME)), (NLM_F_MULTI, "roce0"));
        let list = entries(attribute(body, kind).expect("a list"));
        assert!(!list.is_empty(), "without entries there is no list");
        found.extend(list);
    }
    found
}

#[test]
fn objects_are_listed_one_by_one() {
    let ask = |command, of| {
        let sent = datagrams(&request(command, NLM_F_DUMP, &[(ATTR_DEV_INDEX, 0)]), TEXT);
        listed(&sent, of).into_iter().map(<[u8]>::to_vec).collect::<Vec<_>>()
    };
    let pairs = ask(CMD_RES_QP_GET, ATTR_RES_QP);
    let numbers = [ATTR_RES_LQPN, ATTR_RES_RQPN, ATTR_RES_RQ_PSN, ATTR_RES_SQ_PSN];
    let [first, second] = &pairs[..] else { panic!("{pairs:?}") };
    assert_eq!(numbers.map(|kind| u32_of(first, kind)), [17, 18, 19, 20].map(Some));
    assert_eq!(attribute(first, ATTR_RES_TYPE), Some(&[2][..]));
    assert_eq!(attribute(first, ATTR_RES_STATE), Some(&[3][..]));
    assert_eq!(u32_of(first, ATTR_PORT_INDEX), Some(1));
    assert_eq!((u32_of(first, ATTR_RES_PDN), u32_of(first, ATTR_RES_PID)), (Some(2), Some(305)));
    // One over datagrams has no peer, and one in RESET no port.
    assert_eq!(numbers.map(|kind| u32_of(second, kind)), [Some(21), None, None, Some(0)]);
    assert_eq!(u32_of(second, ATTR_PORT_INDEX), None);

    let kinds = [
        (CMD_RES_CTX_GET, ATTR_RES_CTX, ATTR_RES_CTXN, 1),
        (CMD_RES_PD_GET, ATTR_RES_PD, ATTR_RES_PDN, 2),
        (CMD_RES_CQ_GET, ATTR_RES_CQ, ATTR_RES_CQN, 3),
        (CMD_RES_SRQ_GET, ATTR_RES_SRQ, ATTR_RES_SRQN, 4),
        (CMD_RES_CM_ID_GET, ATTR_RES_CM_ID, ATTR_RES_CM_IDN, 7),
        (CMD_RES_MR_GET, ATTR_RES_MR, ATTR_RES_MRN, 8),
    ];
    let mut found = Vec::new();
    for (command, of, kind, number) in kinds {
        let list = ask(command, of);
        let [only] = &list[..] else { panic!("{list:?}") };
        assert_eq!(u32_of(only, kind), Some(number));
        assert_eq!(u32_of(only, ATTR_RES_PID), Some(300 + number));
        found.push(only.clone());
    }
    let [_, domain, completions, shared, id, region] = &found[..] else { panic!() };
    assert_eq!(u64_of(domain, ATTR_RES_USECNT), Some(7));
    assert_eq!(u32_of(completions, ATTR_RES_CQE), Some(31));
    assert_eq!(u32_of(completions, ATTR_RES_CTXN), Some(1));
    assert_eq!(u64_of(region, ATTR_RES_MRLEN), Some(0));
    assert_eq!((u32_of(id, ATTR_RES_LQPN), u32_of(id, ATTR_RES_PS)), (Some(17), Some(0x106)));
    assert_eq!(attribute(id, ATTR_RES_STATE), Some(&[5][..]));
    // As C has addresses.
    let address = |family: u16, rest: &[u8]| {
        let mut octets = [&family.to_ne_bytes(), rest].concat();
        octets.resize(128, 0);
        octets
    };
    let source = address(2, &[0x1c, 6, 127, 0, 0, 1]);
    assert_eq!(attribute(id, ATTR_RES_SRC_ADDR), Some(&source[..]));
    let mut rest = [0; 22];
    (rest[1], rest[21]) = (9, 1);
    assert_eq!(attribute(id, ATTR_RES_DST_ADDR), Some(&address(10, &rest)[..]));
    let users = entries(attribute(shared, ATTR_RES_QP).expect("its queue pairs"));
    assert_eq!(
        users.iter().map(|user| u32_of(user, ATTR_RES_LQPN)).collect::<Vec<_>>(),
        [Some(17)]
    );
}

#[test]
fn an_object_is_known_by_its_number() {
    let asked = [
        (CMD_RES_QP_GET, ATTR_RES_LQPN, 21, 306),
        (CMD_RES_CQ_GET, ATTR_RES_CQN, 3, 303),
        (CMD_RES_MR_GET, ATTR_RES_MRN, 8, 308),
    ];
    for (command, kind, number, process) in asked {
        let numbers = [(ATTR_DEV_INDEX, 0), (kind, number)];
        let sent = datagrams(&request(command, 0, &numbers), TEXT);
        let [(_, 0, body)] = messages(&sent)[..] else { panic!("{sent:?}") };
        assert_eq!(text(body, ATTR_DEV_NAME), "roce0");
        assert_eq!(u32_of(body, kind), Some(number));
        assert_eq!(u32_of(body, ATTR_RES_PID), Some(process));
        // It is of another kind, or of another device.
        let numbers = [(ATTR_DEV_INDEX, 1), (kind, number)];
        let sent = datagrams(&request(command, 0, &numbers), TEXT);
        let [(NLMSG_ERROR, _, body)] = messages(&sent)[..] else { panic!("{sent:?}") };
        assert_eq!(errno(body), ENOENT);
    }
}

/// More than fits into a datagram: each has as many as fit, and none is lost between them.
#[test]
fn a_list_of_many_objects_is_whole() {
    let list = request(CMD_RES_MR_GET, NLM_F_DUMP, &[(ATTR_DEV_INDEX, 0)]);
    for count in [0, 1, 70, 1000] {
        let facts = Canned(Devices::new(TEXT), count);
        let sent = datagrams_about(&list, &facts);
        let lengths: Vec<_> = listed(&sent, ATTR_RES_MR)
            .into_iter()
            .map(|entry| u64_of(entry, ATTR_RES_MRLEN).expect("a length"))
            .collect();
        assert_eq!(lengths, (0..u64::from(count)).collect::<Vec<_>>());
        let octets: usize = sent.iter().map(Vec::len).sum();
        assert!(sent.len() <= octets / DATAGRAM + 2, "{} of {octets}", sent.len());
    }
    // A receiver that takes no more ends it.
    let (facts, mut count) = (Canned(Devices::new(TEXT), 1000), 0);
    assert!(!answer(&list, PORT, &facts, |_| {
        count += 1;
        count < 2
    }));
    assert_eq!(count, 2);
}
