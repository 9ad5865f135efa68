//! One decision of the core: a client of one resource renews its lease and wants another amount than before.
//!
//! At 100, 10,000 and 1,000,000 clients, which renew in a random order, so that the books of a large fleet are met in cold caches; beside
//! a decision that scans all clients.

mod books;
mod scan;
mod steady;

use std::error::Error;

use doorman_bench::{Effort, Row, Table, Target, take_turns};

use self::{scan::Scan, steady::Steady};

/// How the capacity is divided, where a decision depends on the other clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    Fair,
    Proportional,
}

impl Sharing {
    /// Its name in a document.
    const fn name(self) -> &'static str {
        match self {
            Self::Fair => "FAIR_SHARE",
            Self::Proportional => "PROPORTIONAL_SHARE",
        }
    }
}

/// The scans of one round look at about so many clients, so that those of a million do not take all day.
const SCANNED_A_ROUND: usize = 3_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let effort = Effort::asked();
    let sizes = effort.pick([100, 10_000, 1_000_000], [100, 1_000, 100_000]);
    let both = [Sharing::Fair, Sharing::Proportional];

    let mut table = Table::new("One decision of the core, by clients", "ns a decision");
    for sharing in both {
        grows(effort, sharing, sizes, &mut table)?;
    }
    table.print();

    let mut table = Table::new("The same beside a scan of all clients", "ns a decision");
    for sharing in both {
        for clients in sizes {
            beside_a_scan(effort, sharing, clients, &mut table)?;
        }
    }
    table.print();
    Ok(())
}

/// How much more a decision costs where there are more clients.
fn grows(
    effort: Effort,
    sharing: Sharing,
    [few, some, many]: [usize; 3],
    table: &mut Table,
) -> Result<(), Box<dyn Error>> {
    let (decisions, rounds) = effort.pick((20_000, 21), (5_000, 5));
    let mut at_few = Steady::new(books::empty(sharing, few)?, few)?.settle()?;
    let mut at_some = Steady::new(books::empty(sharing, some)?, some)?.settle()?;
    let mut at_many = Steady::new(books::empty(sharing, many)?, many)?.settle()?;
    let [few_cost, some_cost, many_cost] = take_turns(
        rounds,
        [
            &mut || at_few.round(decisions),
            &mut || at_some.round(decisions),
            &mut || at_many.round(decisions),
        ],
    );
    for (clients, cost, target) in [
        (some, some_cost, Target::None),
        (many, many_cost, Target::AtMost(10.0)),
    ] {
        let (what, beside) = (of(sharing, clients), format!("{few} clients"));
        table.add(Row::ratio(&what, &cost, &beside, &few_cost, target));
    }
    Ok(())
}

/// How much less it costs than a scan of all clients.
fn beside_a_scan(
    effort: Effort,
    sharing: Sharing,
    clients: usize,
    table: &mut Table,
) -> Result<(), Box<dyn Error>> {
    let rounds = effort.pick(9, 3);
    let decisions = effort.pick(5_000, 500);
    let scans = (SCANNED_A_ROUND / clients).clamp(3, decisions);
    let mut ours = Steady::new(books::empty(sharing, clients)?, clients)?.settle()?;
    let mut scanned = Steady::new(Scan::full(sharing, clients)?, clients)?;
    let [cost, others] = take_turns(
        rounds,
        [&mut || ours.round(decisions), &mut || scanned.round(scans)],
    );
    let what = of(sharing, clients);
    table.add(Row::ratio(&what, &cost, "a scan", &others, Target::None));
    Ok(())
}

fn of(sharing: Sharing, clients: usize) -> String {
    format!("{}, {clients} clients", sharing.name())
}
