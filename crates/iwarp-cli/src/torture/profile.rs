// SPDX-License-Identifier: MIT OR Apache-2.0

//! The faults of a profile, as rules.

use std::fs;

use anyhow::{Context, Result, bail};
use iwarp::FaultRules;

#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Profile {
    Mild,
    Network,
    Placement,
    PlacementStrict,
    Events,
    Connections,
    Resources,
    Errors,
    All,
}

const MILD: &str = "late=10,one-in=12\nlate=200,one-in=60";
/// Without what ends a connection.
const NETWORK: &str = "delay=8,cut=900,lose=100,repeat=100,reorder=50";
/// Pieces as most cards have them, of which the last is the last.
const PLACEMENT: &str = "place=pieces,one-in=5,times=60";
/// In the order that no program may rely on.
const STRICT: &str = "place=last-first,one-in=5,times=30";
/// Events late or twice, and calls that take their time.
const EVENTS: &str = "late=100,op=event,one-in=8\n\
    again=event,one-in=4\n\
    late=100,op=async-event,one-in=2\n\
    late=100,op=cm-event,one-in=6\n\
    slow=50,verb=ibv_reg_mr,one-in=4\n\
    slow=50,verb=ibv_create_qp,one-in=4\n\
    slow=50,verb=ibv_modify_qp,one-in=10\n\
    slow=50,verb=ibv_post_send,one-in=30\n\
    slow=50,verb=ibv_post_recv,one-in=30";
/// Connections that cannot be made.
const CONNECTIONS: &str = "event=ADDR_ERROR,one-in=8\n\
    event=ROUTE_ERROR,one-in=8\n\
    event=REJECTED,one-in=5\n\
    event=UNREACHABLE,one-in=8";
/// A network that ends connections as well.
const CUTTING: &str = "delay=8,cut=900,lose=100,repeat=100,reorder=50,reset=3";
/// Calls that each program makes often, and some that it makes once or twice.
const RESOURCES: &str = "errno=ENOMEM,verb=ibv_post_send,one-in=12\n\
    errno=ENOMEM,verb=ibv_post_recv,one-in=12\n\
    errno=ENOMEM,verb=ibv_wr_complete,one-in=12\n\
    errno=ENOMEM,verb=ibv_reg_mr,one-in=6\n\
    errno=ENOMEM,verb=ibv_reg_mr_iova2,one-in=6\n\
    errno=ENOMEM,verb=ibv_alloc_pd,one-in=16\n\
    errno=ENOMEM,verb=ibv_create_comp_channel,one-in=16\n\
    errno=ENOMEM,verb=ibv_create_cq,one-in=8\n\
    errno=ENOMEM,verb=ibv_create_cq_ex,one-in=8\n\
    errno=ENOMEM,verb=ibv_create_qp,one-in=8\n\
    errno=ENOMEM,verb=ibv_create_qp_ex,one-in=8\n\
    errno=ENOMEM,verb=ibv_create_srq,one-in=8\n\
    errno=ENOMEM,verb=ibv_create_ah,one-in=8\n\
    errno=ENOMEM,verb=ibv_modify_qp,one-in=20\n\
    errno=ENOMEM,verb=rdma_create_id,one-in=16\n\
    errno=ENOMEM,verb=rdma_create_qp,one-in=8";
const ERRORS: &str = "status=RETRY_EXC_ERR,one-in=15\n\
    status=RNR_RETRY_EXC_ERR,op=send,one-in=30\n\
    status=GENERAL_ERR,op=recv,one-in=30";

impl Profile {
    /// True if a right program may have to give up.
    pub(super) const fn refuses(self) -> bool {
        matches!(self, Self::Connections | Self::Resources | Self::Errors | Self::All)
    }

    pub(super) fn rules(self) -> Rules {
        let (rules, network): (&[&str], _) = match self {
            Self::Mild => (&[MILD], ""),
            Self::Network => (&[MILD], NETWORK),
            Self::Placement => (&[PLACEMENT], ""),
            Self::PlacementStrict => (&[PLACEMENT, STRICT], ""),
            Self::Events => (&[EVENTS], ""),
            Self::Connections => (&[CONNECTIONS], CUTTING),
            Self::Resources => (&[RESOURCES], ""),
            Self::Errors => (&[ERRORS], ""),
            Self::All => (&[RESOURCES, CONNECTIONS, ERRORS, MILD, PLACEMENT, EVENTS], CUTTING),
        };
        let rules = rules.iter().flat_map(|text| text.lines()).map(|rule| rule.trim().to_owned());
        Rules { rules: rules.collect(), network: network.to_owned() }
    }
}

/// The text of `--faults`: the rules themselves, or `@FILE`, which has them.
///
/// # Errors
///
/// When the file cannot be read.
pub(crate) fn given_rules(given: &str) -> Result<String> {
    match given.strip_prefix('@') {
        None => Ok(given.to_owned()),
        Some(file) => fs::read_to_string(file).with_context(|| format!("--faults @{file}")),
    }
}

/// Rules, and the words of the network's faults beside them.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) rules: Vec<String>,
    pub(super) network: String,
}

impl Rules {
    /// The rules that a user has given.
    pub(super) fn given(given: &str) -> Result<Self> {
        let text = given_rules(given)?;
        let parsed: FaultRules = text.parse().context("--faults: expected")?;
        if parsed.is_recorded() || text.contains("only=") || text.contains("seed=") {
            bail!("--faults: leave out seed=, only= and record=, which this command chooses");
        }
        let rules: Vec<_> = parsed.texts().map(str::to_owned).collect();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let parts = lines.flat_map(|line| line.split(';')).map(str::trim);
        let network =
            parts.filter(|part| !part.is_empty() && !rules.iter().any(|rule| rule == part));
        Ok(Self { network: network.collect::<Vec<_>>().join(","), rules })
    }

    /// All of them, decided by this seed.
    pub(super) fn with_seed(&self, seed: u64) -> String {
        let mut parts = vec![format!("seed={seed}")];
        parts.extend(self.rules.iter().cloned());
        parts.extend((!self.network.is_empty()).then(|| self.network.clone()));
        parts.join("; ")
    }

    /// The network's faults, which are left out one by one as others are.
    pub(super) fn of_network(&self) -> impl Iterator<Item = String> {
        self.network.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned)
    }

    /// These faults alone, the network's among them, with as few rules as they need.
    pub(super) fn only(&self, names: &[String], seed: u64) -> String {
        let (single, network): (Vec<_>, Vec<_>) =
            names.iter().partition(|name| rule_of(name).is_some());
        let mut used: Vec<usize> = single.iter().filter_map(|name| rule_of(name)).collect();
        used.sort_unstable();
        used.dedup();
        let mut parts = Vec::new();
        if !network.is_empty() {
            let words: Vec<_> = network.into_iter().map(String::as_str).collect();
            parts.push(format!("seed={seed},{}", words.join(",")));
        }
        let rules = used.iter().filter_map(|at| self.rules.get(at.checked_sub(1)?).cloned());
        parts.extend(rules);
        if used.is_empty() {
            // A rule has to be there, so that none fires.
            parts.extend(self.rules.first().cloned());
        }
        let renamed = single.into_iter().map(|name| {
            let mut words: Vec<_> = name.split(':').map(str::to_owned).collect();
            if let Some(place) = rule_of(name).and_then(|at| used.binary_search(&at).ok()) {
                words[1] = (place + 1).to_string();
            }
            words.join(":")
        });
        parts.push(format!("only={}", renamed.collect::<Vec<_>>().join("+")));
        parts.join("; ")
    }
}

/// Number of the rule by which a fault has fired.
fn rule_of(name: &str) -> Option<usize> {
    name.split(':').nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn the_rules_of_all_profiles_are_rules() {
        for profile in Profile::value_variants() {
            let rules = profile.rules();
            let parsed: FaultRules = rules.with_seed(7).parse().expect("rules");
            assert_eq!(parsed.texts().count(), rules.rules.len());
            assert_eq!(parsed.seed(), 7);
        }
    }

    #[test]
    fn single_faults_take_their_rules_along() {
        let rules = Rules::given("late=1;late=2 # slow\ncut=9;late=3").expect("rules");
        let names = ["a:3:1:sent:4", "a:2:1:sent:5"].map(str::to_owned);
        let text = rules.only(&names, 7);
        assert_eq!(text, "late=2; late=3; only=a:2:1:sent:4+a:1:1:sent:5");
        let rules = Rules::given("late=1;cut=9,delay=8").expect("rules");
        assert_eq!(rules.of_network().collect::<Vec<_>>(), ["cut=9", "delay=8"]);
        let names = ["delay=8", "a:1:1:sent:4"].map(str::to_owned);
        assert_eq!(rules.only(&names, 7), "seed=7,delay=8; late=1; only=a:1:1:sent:4");
        assert_eq!(rules.only(&[], 7), "late=1; only=");
    }
}
