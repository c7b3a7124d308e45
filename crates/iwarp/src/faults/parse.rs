// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rules from text: one a line, or several with semicolons between; `#` begins a comment.
//!
//! A rule that can never fire is refused, so that no test passes for want of its fault.

use std::str::FromStr;
use std::time::Duration;

use super::Outcome;
use super::rules::{Action, FaultRules, Kind, Rule};
use super::words::{
    ADDRESS, ASYNC_EVENTS, CM_EVENTS, CONNECTION, DISCONNECTION, ERRNOS, EVENTS, KINDS, ORDERS,
    OUTCOMES, PLACED, RECEIVED, ROUTE, SENT, STATUSES, VERBS,
};

/// A rule is not one, with what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct RuleError(String);

macro_rules! wrong {
    ($($text:tt)*) => { RuleError(format!($($text)*)) };
}

/// Words of the network's faults, which are no rules.
const NETWORK: [&str; 8] =
    ["lose", "repeat", "reorder", "damage", "delay", "cut", "corrupt", "reset"];

/// Words of a rule that say what happens.
const ACTIONS: [&str; 7] = ["errno", "status", "late", "place", "slow", "event", "again"];

/// Takes the words of the network's faults out of `text`; the rest are rules.
pub(crate) fn split(text: &str) -> Result<(String, FaultRules), RuleError> {
    let mut network = Vec::new();
    let mut parsed = FaultRules::default();
    let (mut rules, mut seed) = (Vec::new(), None);
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        for statement in line.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let names = statement.split(',').map(|word| word.split('=').next().unwrap_or(word));
            let names: Vec<_> = names.map(str::trim).collect();
            if names.iter().any(|name| ACTIONS.contains(name)) {
                rules.push(rule(statement)?);
            } else if let Some(list) = statement.strip_prefix("only=") {
                let ids = list.split('+').filter(|id| !id.is_empty()).map(str::to_owned);
                parsed.only = Some(std::sync::Arc::new(ids.collect()));
            } else if let Some(path) = statement.strip_prefix("record=") {
                parsed.record = Some(path.into());
            } else if names.iter().all(|name| *name == "seed" || NETWORK.contains(name)) {
                for word in statement.split(',').map(str::trim) {
                    match word.strip_prefix("seed=") {
                        Some(number_of_seed) => seed = Some(number("seed", number_of_seed)?),
                        None => network.push(word.to_owned()),
                    }
                }
            } else {
                return Err(wrong!(
                    "a rule with {}, as in \
                     errno=ENOMEM,verb=ibv_post_send,nth=3, or faults of the network, as in \
                     lose=100; not {statement:?}",
                    actions()
                ));
            }
        }
    }
    if let Some(seed) = seed {
        parsed.seed = seed;
        network.insert(0, format!("seed={seed}"));
    }
    parsed.rules = rules.into();
    Ok((network.join(","), parsed))
}

impl FromStr for FaultRules {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        split(text).map(|(_, rules)| rules)
    }
}

/// The words of which a rule has one.
fn actions() -> String {
    let [first @ .., last] = ACTIONS.map(|name| format!("{name}="));
    format!("{} or {last}", first.join(", "))
}

fn number(name: &str, text: &str) -> Result<u64, RuleError> {
    text.trim().parse().map_err(|_| wrong!("a number for {name}=, not {text:?}"))
}

/// A number that may be hexadecimal, with 0x in front.
fn word_number(name: &str, text: &str) -> Result<u64, RuleError> {
    match text.trim().strip_prefix("0x") {
        None => number(name, text),
        Some(digits) => u64::from_str_radix(digits, 16)
            .map_err(|_| wrong!("a number for {name}=, not {text:?}")),
    }
}

/// A number that is at least 1.
fn count(name: &str, text: &str) -> Result<u64, RuleError> {
    match number(name, text)? {
        0 => Err(wrong!("at least 1 for {name}=, as {name}=0 never fires")),
        number => Ok(number),
    }
}

fn list<T>(names: impl Iterator<Item = T>) -> String
where
    T: AsRef<str>,
{
    names.map(|name| name.as_ref().to_owned()).collect::<Vec<_>>().join(", ")
}

fn rule(text: &str) -> Result<Rule, RuleError> {
    let mut action = None;
    let mut rule = Rule {
        text: text.to_owned(),
        action: Action::Errno(0),
        verb: None,
        qp: None,
        qpn: None,
        wr_id: None,
        kind: None,
        size: None,
        after: None,
        before: None,
        nth: None,
        every: None,
        one_in: None,
        times: None,
        lanes: vec![SENT, RECEIVED],
        program: None,
        argument: None,
    };
    let mut names = Vec::new();
    for word in text.split(',') {
        let (name, value) = word
            .split_once('=')
            .ok_or_else(|| wrong!("NAME=VALUE in {text:?}, not {:?}", word.trim()))?;
        let (name, value) = (name.trim(), value.trim());
        if names.contains(&name) {
            return Err(wrong!("{name}= once in {text:?}"));
        }
        names.push(name);
        match name {
            name if ACTIONS.contains(&name) && action.is_some() => {
                return Err(wrong!("one of {} in {text:?}: write two rules", actions()));
            }
            "errno" => action = Some(Action::Errno(known(name, value, &ERRNOS)?)),
            "status" => {
                let (status, of_sends, of_receives) = status(value)?;
                let queues = [of_sends.then_some(SENT), of_receives.then_some(RECEIVED)];
                rule.lanes = queues.into_iter().flatten().collect();
                action = Some(status);
            }
            "late" => action = Some(Action::Late(Duration::from_millis(count(name, value)?))),
            "slow" => action = Some(Action::Slow(Duration::from_millis(count(name, value)?))),
            "event" => action = Some(Action::End(known(name, value, &OUTCOMES)?)),
            "again" => action = Some(known(name, value, &[("event", Action::Again)])?),
            "program" => rule.program = Some(value.to_owned()),
            "arg" => rule.argument = Some(value.to_owned()),
            "place" => action = Some(Action::Place(known(name, value, &ORDERS)?)),
            "verb" => {
                let known = VERBS.into_iter().find(|verb| verb.name == value);
                let names = || list(VERBS.iter().map(|verb| verb.name));
                rule.verb = Some(known.ok_or_else(|| {
                    wrong!(
                        "a function that can be refused or slow for verb=, not {value:?}: {}",
                        names()
                    )
                })?);
            }
            "op" => rule.kind = Some(known(name, value, &KINDS)?),
            "qp" => rule.qp = Some(count(name, value)?.try_into().unwrap_or(u32::MAX)),
            "qpn" => rule.qpn = Some(number(name, value)?.try_into().unwrap_or(u32::MAX)),
            "wr-id" => rule.wr_id = Some(word_number(name, value)?),
            "size" => rule.size = Some(range(value)?),
            "nth" => rule.nth = Some(count(name, value)?),
            "every" => rule.every = Some(count(name, value)?),
            "one-in" => rule.one_in = Some(count(name, value)?),
            "times" => rule.times = Some(count(name, value)?),
            "after" => rule.after = Some(Duration::from_millis(number(name, value)?)),
            "before" => rule.before = Some(Duration::from_millis(count(name, value)?)),
            other => {
                return Err(wrong!(
                    "of a rule the words {}, verb, op, qp, qpn, wr-id, size, nth, every, one-in, \
                     times, after, before, program and arg, not {other:?}",
                    ACTIONS.join(", ")
                ));
            }
        }
    }
    rule.action = action.ok_or_else(|| wrong!("{} in {text:?}", actions()))?;
    check(rule)
}

/// The meaning of one of several words.
fn known<T: Copy>(name: &str, value: &str, words: &[(&str, T)]) -> Result<T, RuleError> {
    let found = words.iter().find(|(word, _)| *word == value);
    let names = || list(words.iter().map(|(word, _)| word));
    let found = found.ok_or_else(|| wrong!("for {name}= one of {}, not {value:?}", names()))?;
    Ok(found.1)
}

fn status(value: &str) -> Result<(Action, bool, bool), RuleError> {
    let short = value.strip_prefix("IBV_WC_").unwrap_or(value);
    if short == "WR_FLUSH_ERR" {
        return Err(wrong!(
            "another status than WR_FLUSH_ERR, which requests get once one before them has failed"
        ));
    }
    let known = STATUSES.iter().find(|(name, ..)| *name == short);
    let names = || list(STATUSES.iter().map(|(name, ..)| name));
    let known = known.ok_or_else(|| wrong!("for status= one of {}, not {value:?}", names()))?;
    Ok((Action::Status(known.1), known.2, known.3))
}

/// `N`, `N-M` or `N-`.
fn range(value: &str) -> Result<std::ops::RangeInclusive<u64>, RuleError> {
    let range = match value.split_once('-') {
        None => number("size", value).map(|size| size..=size)?,
        Some((from, "")) => number("size", from)?..=u64::MAX,
        Some((from, to)) => number("size", from)?..=number("size", to)?,
    };
    if range.is_empty() {
        return Err(wrong!("the smaller size first, not size={value}"));
    }
    Ok(range)
}

/// Refuses what can never fire.
fn check(mut rule: Rule) -> Result<Rule, RuleError> {
    let text = &rule.text;
    let chosen = [rule.nth, rule.every, rule.one_in].into_iter().flatten().count();
    if chosen > 1 {
        return Err(wrong!("one of nth=, every= and one-in= in {text:?}"));
    }
    if let (Some(after), Some(before)) = (rule.after, rule.before)
        && after >= before
    {
        return Err(wrong!("after= less than before= in {text:?}"));
    }
    if rule.wr_id.is_some() && !matches!(rule.action, Action::Status(_) | Action::Late(_)) {
        return Err(wrong!("no wr-id= in {text:?}: it chooses among completions"));
    }
    match rule.verb {
        Some(_) => check_call(&rule)?,
        None => check_lanes(&mut rule)?,
    }
    Ok(rule)
}

/// As [`check`], of a rule with a function.
fn check_call(rule: &Rule) -> Result<(), RuleError> {
    let (text, Some(verb)) = (&rule.text, rule.verb) else { return Ok(()) };
    if !matches!(rule.action, Action::Errno(_) | Action::Slow(_)) {
        return Err(wrong!("no verb= in {text:?}, which is not about calls"));
    }
    if !verb.fails && matches!(rule.action, Action::Errno(_)) {
        let names = list(VERBS.iter().filter(|verb| verb.fails).map(|verb| verb.name));
        let found = verb.name;
        return Err(wrong!("a function that can be refused for verb=, not {found:?}: {names}"));
    }
    if !verb.on_qp && (rule.qp.is_some() || rule.qpn.is_some()) {
        return Err(wrong!(
            "no qp= or qpn= in {text:?}: {} is not called on a queue pair",
            verb.name
        ));
    }
    if !verb.posts && (rule.kind.is_some() || rule.size.is_some()) {
        return Err(wrong!("no op= or size= in {text:?}: {} posts nothing", verb.name));
    }
    let posts = match rule.kind {
        None => true,
        Some(kind) if verb.name == "ibv_post_recv" => kind == Kind::Recv,
        Some(kind) => kind != Kind::Recv && !is_event(kind),
    };
    if !posts {
        return Err(wrong!("another op= in {text:?}: {} never posts it", verb.name));
    }
    Ok(())
}

const fn is_event(kind: Kind) -> bool {
    matches!(kind, Kind::Event | Kind::AsyncEvent | Kind::CmEvent)
}

/// As [`check`], of a rule without a function, which gets its lanes.
fn check_lanes(rule: &mut Rule) -> Result<(), RuleError> {
    let text = &rule.text;
    let only = match (rule.action, rule.kind) {
        (Action::Errno(_) | Action::Slow(_), _) => {
            return Err(wrong!("verb= in {text:?}: the function that is refused or slow"));
        }
        (Action::Place(_), None) => Some(PLACED),
        (Action::Again, None) => Some(EVENTS),
        (Action::End(outcome), None) => Some(match outcome {
            Outcome::AddressError => ADDRESS,
            Outcome::RouteError => ROUTE,
            Outcome::Rejected | Outcome::Unreachable | Outcome::ConnectError => CONNECTION,
            Outcome::TimewaitExit => DISCONNECTION,
        }),
        (Action::Place(_) | Action::Again | Action::End(_), Some(_)) => {
            return Err(wrong!("no op= in {text:?}: it chooses among completions and events"));
        }
        (_, Some(Kind::Event)) => Some(EVENTS),
        (_, Some(Kind::AsyncEvent)) => Some(ASYNC_EVENTS),
        (_, Some(Kind::CmEvent)) => Some(CM_EVENTS),
        _ => None,
    };
    let Some(only) = only else { return check_completions(rule) };
    if matches!(rule.action, Action::Status(_)) {
        return Err(wrong!("late= in place of status= in {text:?}: events have no status"));
    }
    let has_qp = rule.qp.is_some() || rule.qpn.is_some() || rule.size.is_some();
    if (has_qp && only != PLACED) || rule.wr_id.is_some() {
        return Err(wrong!("no qp=, qpn=, wr-id= or size= in {text:?}: events are of none"));
    }
    rule.lanes = vec![only];
    Ok(())
}

/// As [`check`], of a rule for completions.
fn check_completions(rule: &mut Rule) -> Result<(), RuleError> {
    let text = &rule.text;
    match rule.kind {
        Some(Kind::Recv) => rule.lanes.retain(|lane| *lane == RECEIVED),
        Some(_) => rule.lanes.retain(|lane| *lane == SENT),
        None => {}
    }
    if rule.lanes.is_empty() {
        return Err(wrong!("another status or op= in {text:?}: no such request ends so"));
    }
    if rule.size.is_some() && !matches!(rule.kind, Some(Kind::Recv | Kind::Read)) {
        return Err(wrong!(
            "op=recv or op=read beside size= in {text:?}: no other completion has a length"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_from_lines_and_lists() {
        let text = "seed=9, lose=100 # the network\n\
                    errno=ENOMEM,verb=ibv_post_send,op=send,nth=3; late=20,op=recv,one-in=4\n\n\
                    # none\nstatus=IBV_WC_RNR_RETRY_EXC_ERR,op=send,qp=2,times=1";
        let (network, rules) = split(text).unwrap();
        assert_eq!(network, "seed=9,lose=100");
        assert_eq!((rules.seed, rules.rules.len()), (9, 3));
        assert_eq!(rules.rules[0].action, Action::Errno(12));
        assert_eq!(rules.rules[1].action, Action::Late(Duration::from_millis(20)));
        assert_eq!(rules.rules[2].lanes, [SENT]);
    }

    #[test]
    fn numbers_of_requests_may_be_hexadecimal() {
        let rules: FaultRules = "late=5,wr-id=0xfe; late=5,wr-id=12".parse().unwrap();
        let numbers: Vec<_> = rules.rules.iter().map(|rule| rule.wr_id).collect();
        assert_eq!(numbers, [Some(0xfe), Some(12)]);
    }

    #[test]
    fn a_rule_that_can_never_fire_is_refused_with_advice() {
        for (text, advice) in [
            ("errno=ENOMEM", "verb= in"),
            ("slow=5", "verb= in"),
            ("slow=5,verb=ibv_get_cq_event", "a function that can be refused or slow"),
            ("event=ESTABLISHED", "for event= one of ADDR_ERROR"),
            ("event=REJECTED,qp=1", "events are of none"),
            ("event=TIMEWAIT_EXIT,wr-id=1", "no wr-id="),
            ("late=5,op=cm-event,wr-id=1", "events are of none"),
            ("errno=ENOMEM,verb=ibv_post_send,wr-id=1", "no wr-id="),
            ("late=5,wr-id=0xg", "a number for wr-id="),
            ("again=completion", "for again= one of event"),
            ("again=event,op=send", "no op="),
            ("late=5,op=event,size=3", "events are of none"),
            ("status=GENERAL_ERR,op=event", "late= in place of status="),
            ("errno=ENOMEM,verb=ibv_post_send,op=event", "never posts it"),
            ("errno=ENOMEN,verb=ibv_reg_mr", "for errno= one of EPERM"),
            ("errno=ENOMEM,verb=ibv_dereg_mr", "a function that can be refused"),
            ("errno=ENOMEM,verb=ibv_reg_mr,qp=1", "not called on a queue pair"),
            ("errno=ENOMEM,verb=ibv_reg_mr,size=1", "posts nothing"),
            ("errno=ENOMEM,verb=ibv_post_recv,op=send", "never posts it"),
            ("errno=ENOMEM,verb=ibv_post_send,nth=0", "at least 1"),
            ("errno=ENOMEM,verb=ibv_post_send,nth=1,every=2", "one of nth=, every= and one-in="),
            ("errno=ENOMEM,verb=ibv_post_send,size=9-1", "the smaller size first"),
            ("status=SUCCESS", "for status= one of"),
            ("status=WR_FLUSH_ERR", "another status than WR_FLUSH_ERR"),
            ("status=RETRY_EXC_ERR,op=recv", "no such request ends so"),
            ("status=LOC_ACCESS_ERR,op=send", "no such request ends so"),
            ("status=GENERAL_ERR,op=send,size=4", "op=recv or op=read"),
            ("late=5,verb=ibv_post_send", "no verb="),
            ("late=5,late=6", "late= once"),
            ("late=5,status=GENERAL_ERR", "write two rules"),
            ("late=5,after=9,before=9", "after= less than before="),
            ("late=5,before=0", "at least 1"),
            ("place=late", "for place= one of pieces, last-first"),
            ("place=pieces,op=write", "no op="),
            ("place=pieces,verb=ibv_post_send", "no verb="),
            ("late=5,colour=red", "not \"colour\""),
            ("loss=5", "not \"loss=5\""),
        ] {
            let error = text.parse::<FaultRules>().expect_err(text).to_string();
            assert!(error.contains(advice), "{text}: {error}");
        }
    }

    proptest::proptest! {
        /// Any text is rules or a sentence.
        #[test]
        fn no_text_panics(text in "(errno|status|late|place|slow|event|again|seed|only|[a-z]{1,5})=[A-Z0-9+,;=#-]{0,40}") {
            let _ = text.parse::<FaultRules>();
        }
    }
}
