// SPDX-License-Identifier: MIT OR Apache-2.0

//! The constants of `linux/netlink.h` and `rdma/rdma_netlink.h` that are used here, by the names
//! that they have there.

#![allow(missing_docs, reason = "as in the kernel's headers")]

/// Octets of a message's header.
pub const NLMSG_HDRLEN: usize = 16;
/// Octets of an attribute's header.
pub const NLA_HDRLEN: usize = 4;

pub const NLM_F_REQUEST: u16 = 1;
pub const NLM_F_MULTI: u16 = 2;
pub const NLM_F_ACK: u16 = 4;
/// Of an acknowledgement that repeats no more of its request than the header.
pub const NLM_F_CAPPED: u16 = 0x100;
/// Either of its two bits asks for all there is.
pub const NLM_F_DUMP: u16 = 0x300;

pub const NLMSG_ERROR: u16 = 2;
pub const NLMSG_DONE: u16 = 3;
pub const NLMSG_MIN_TYPE: u16 = 0x10;

pub const NLA_F_NESTED: u16 = 1 << 15;
/// The bits that are no flags.
pub const NLA_TYPE_MASK: u16 = 0x3fff;

/// The client whose commands these are; a message's type is it and a command of ten bits.
pub const RDMA_NL_NLDEV: u16 = 5;

pub const CMD_GET: u16 = 1;
pub const CMD_PORT_GET: u16 = 5;
pub const CMD_SYS_GET: u16 = 6;
pub const CMD_RES_GET: u16 = 9;
pub const CMD_RES_QP_GET: u16 = 10;
pub const CMD_RES_CM_ID_GET: u16 = 11;
pub const CMD_RES_CQ_GET: u16 = 12;
pub const CMD_RES_MR_GET: u16 = 13;
pub const CMD_RES_PD_GET: u16 = 14;
pub const CMD_STAT_GET: u16 = 17;
pub const CMD_RES_CTX_GET: u16 = 22;
pub const CMD_RES_SRQ_GET: u16 = 23;
/// The last one.
pub const CMD_MONITOR: u16 = 28;

pub const ATTR_DEV_INDEX: u16 = 1;
pub const ATTR_DEV_NAME: u16 = 2;
pub const ATTR_PORT_INDEX: u16 = 3;
pub const ATTR_CAP_FLAGS: u16 = 4;
pub const ATTR_FW_VERSION: u16 = 5;
pub const ATTR_NODE_GUID: u16 = 6;
pub const ATTR_SYS_IMAGE_GUID: u16 = 7;
pub const ATTR_PORT_STATE: u16 = 12;
pub const ATTR_PORT_PHYS_STATE: u16 = 13;
pub const ATTR_DEV_NODE_TYPE: u16 = 14;
pub const ATTR_RES_SUMMARY: u16 = 15;
pub const ATTR_RES_SUMMARY_ENTRY: u16 = 16;
pub const ATTR_RES_SUMMARY_ENTRY_NAME: u16 = 17;
pub const ATTR_RES_SUMMARY_ENTRY_CURR: u16 = 18;
pub const ATTR_RES_QP: u16 = 19;
pub const ATTR_RES_QP_ENTRY: u16 = 20;
pub const ATTR_RES_LQPN: u16 = 21;
pub const ATTR_RES_RQPN: u16 = 22;
pub const ATTR_RES_RQ_PSN: u16 = 23;
pub const ATTR_RES_SQ_PSN: u16 = 24;
pub const ATTR_RES_PATH_MIG_STATE: u16 = 25;
pub const ATTR_RES_TYPE: u16 = 26;
pub const ATTR_RES_STATE: u16 = 27;
pub const ATTR_RES_PID: u16 = 28;
pub const ATTR_RES_CM_ID: u16 = 30;
pub const ATTR_RES_CM_ID_ENTRY: u16 = 31;
pub const ATTR_RES_PS: u16 = 32;
pub const ATTR_RES_SRC_ADDR: u16 = 33;
pub const ATTR_RES_DST_ADDR: u16 = 34;
pub const ATTR_RES_CQ: u16 = 35;
pub const ATTR_RES_CQ_ENTRY: u16 = 36;
pub const ATTR_RES_CQE: u16 = 37;
pub const ATTR_RES_USECNT: u16 = 38;
pub const ATTR_RES_MR: u16 = 40;
pub const ATTR_RES_MR_ENTRY: u16 = 41;
pub const ATTR_RES_MRLEN: u16 = 45;
pub const ATTR_RES_PD: u16 = 46;
pub const ATTR_RES_PD_ENTRY: u16 = 47;
pub const ATTR_NDEV_INDEX: u16 = 50;
pub const ATTR_NDEV_NAME: u16 = 51;
pub const ATTR_DRIVER: u16 = 52;
pub const ATTR_DRIVER_STRING: u16 = 54;
pub const ATTR_RES_PDN: u16 = 60;
pub const ATTR_RES_CQN: u16 = 61;
pub const ATTR_RES_MRN: u16 = 62;
pub const ATTR_RES_CM_IDN: u16 = 63;
pub const ATTR_RES_CTXN: u16 = 64;
pub const SYS_ATTR_NETNS_MODE: u16 = 66;
pub const ATTR_DEV_PROTOCOL: u16 = 67;
pub const ATTR_STAT_MODE: u16 = 74;
pub const ATTR_STAT_RES: u16 = 75;
pub const ATTR_STAT_HWCOUNTERS: u16 = 80;
pub const ATTR_STAT_HWCOUNTER_ENTRY: u16 = 81;
pub const ATTR_STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
pub const ATTR_STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
pub const ATTR_RES_CTX: u16 = 86;
pub const ATTR_RES_CTX_ENTRY: u16 = 87;
pub const ATTR_RES_SRQ: u16 = 88;
pub const ATTR_RES_SRQ_ENTRY: u16 = 89;
pub const ATTR_RES_SRQN: u16 = 90;
pub const SYS_ATTR_COPY_ON_FORK: u16 = 93;

pub const AF_INET: u16 = 2;
pub const AF_INET6: u16 = 10;

pub const ENOENT: i32 = 2;
pub const EINVAL: i32 = 22;
pub const EMSGSIZE: i32 = 90;
pub const EOPNOTSUPP: i32 = 95;
