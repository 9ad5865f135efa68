//! The model holds with all rules, and breaks without each rule that it contains.

use std::{fs, time::Duration};

use doorman_model::{
    machine::Setup,
    model::{ALL_AT_NODE, Action, Call, Model, Reply, Scope},
    rules::{Finding, finding},
    search::{Limits, Outcome, search},
    tables::Tables,
    value::DROPPED,
};
use doorman_sim::Rule;

/// The steps after which all behaviour with all faults was tried.
const DEPTH: usize = 5;
/// The same where clients always want all and messages are not lost, after they have leases.
const DEEP: usize = 9;
/// The processes with the same text whose steps are compared.
const TWINS: usize = 3;

fn run(scope: Scope, depth: usize, without: Option<Rule>, twins: usize) -> (Model, Outcome) {
    let tables = Tables::comparing(Setup::usual(without), twins);
    let mut model = Model::new(scope, tables);
    let limits = Limits {
        depth,
        states: usize::MAX,
        time: Duration::MAX,
    };
    let outcome = search(&mut model, &limits, |_, _| {});
    (model, outcome)
}

/// The violation that a search has found, in words.
fn violation(model: &mut Model, outcome: &Outcome) -> Option<String> {
    let (actions, broken) = outcome.violation.as_ref()?;
    Some(format!(
        "{}:\n{}",
        broken.0,
        model.explain(actions).join("\n")
    ))
}

#[track_caller]
fn assert_holds(scope: Scope, depth: usize) {
    let (mut model, outcome) = run(scope, depth, None, TWINS);
    let violation = violation(&mut model, &outcome);
    assert!(violation.is_none(), "{}", violation.unwrap_or_default());
    assert!(outcome.depth == depth || outcome.is_complete);
    assert!(
        model.tables.compared() > 0,
        "no two processes were the same"
    );
}

#[test]
fn capacity_holds_with_all_faults() {
    assert_holds(Scope::FAULTS, DEPTH);
}

#[test]
fn capacity_holds_after_two_masters_of_the_root_and_one_of_the_node() {
    let scope = Scope {
        prelude: ALL_AT_NODE,
        crashes: 2,
        fail_overs: 1,
        node_messages: 1,
        ..Scope::GREEDY
    };
    assert_holds(scope, DEEP);
}

/// One cut link, one new master of the node and one of the root.
#[test]
fn node_that_claims_for_its_holders_exceeds_the_capacity() {
    const fn ask(sender: u8) -> Action {
        Action::Ask {
            sender,
            call: Call::Wants(2),
            reply: Reply::Arrives,
        }
    }
    let (node, a, b) = (0, 1, 2);
    // `a` claims what it has at the node's new master. The link is cut until its lease has ended,
    // `b` has all, and the root has a new master.
    let steps = [
        Action::FailOver,
        ask(a),
        Action::Tick,
        Action::Tick,
        ask(b),
        Action::Crash,
        ask(node),
        ask(a),
    ];
    let breaks = |without| {
        let scope = Scope {
            prelude: ALL_AT_NODE,
            crashes: 1,
            fail_overs: 1,
            checks_node: false,
            ..Scope::GREEDY
        };
        let mut model = Model::new(scope, Tables::new(Setup::usual(without)));
        let mut state = model.initial();
        steps.iter().any(|action| {
            let step = model.step(&state, *action).expect("it is possible");
            state = step.state;
            step.broken.is_some()
        })
    };
    assert!(breaks(Some(Rule::OwnLeasesOnly)));
    assert!(!breaks(None));
}

#[test]
fn dropped_fields_exist() {
    let (model, _) = run(Scope::FAULTS, 3, None, 0);
    let texts = model.tables.debug_texts();
    for dropped in DROPPED {
        let (name, field) = dropped.split_once('.').expect("it has a type and a field");
        let is_there = texts.iter().any(|text| {
            text.contains(&format!("{name} {{"))
                && (field == "*" || text.contains(&format!(" {field}: ")))
        });
        assert!(is_there, "no {dropped}");
    }
}

fn read(path: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    fs::read_to_string(format!("{root}/{path}")).expect(path)
}

#[test]
fn tests_of_other_rules_exist() {
    for rule in Rule::ALL {
        if let Finding::Test(file, test) = finding(*rule) {
            assert!(read(file).contains(test), "{rule}: no {test} in {file}");
        }
    }
}

/// A late copy of a node's claim arrives as learning mode ends, and the node, which has forgotten
/// the resource, asks for it again.
#[test]
fn late_claim_of_a_node_is_not_granted_after_learning_mode() {
    let scope = Scope {
        prelude: ALL_AT_NODE,
        crashes: 1,
        node_messages: 1,
        ..Scope::GREEDY
    };
    assert_holds(scope, 11);
}

/// The number of states of a search that finds that the rule is missing. With all rules it finds
/// nothing.
fn assert_needed(rule: Rule, scope: Scope, depth: usize) -> usize {
    let (_, without) = run(scope, depth, Some(rule), 0);
    assert!(without.violation.is_some(), "it holds without {rule}");
    assert_eq!(without.depth, depth, "without {rule}");
    let (mut model, with) = run(scope, depth, None, 0);
    let violation = violation(&mut model, &with);
    let words = violation.as_deref().unwrap_or_default();
    assert!(violation.is_none(), "in the scope of {rule}: {words}");
    without.states
}

/// Each rule of the model is needed, and docs/MODEL.md lists what finds that. `DOORMAN_UPDATE=1`
/// writes its table anew.
#[test]
fn rules_are_needed_as_documented() {
    let rows = Rule::ALL.iter().map(|rule| {
        let found = match finding(*rule) {
            Finding::Model(scope, depth) => {
                let states = assert_needed(*rule, scope, depth);
                let steps = scope.prelude.len() + depth;
                format!("the model: {steps} steps, {states} states")
            }
            Finding::Test(file, test) => format!("`{test}` in `{file}`"),
        };
        format!("| `{rule}` | {found} |\n")
    });
    let head = "| rule | found by |\n|---|---|\n";
    let table = format!("{head}{}", rows.collect::<String>());
    let text = read("docs/MODEL.md");
    let (before, rest) = text.split_once(head).expect("it has the table");
    let (_, after) = rest.split_once("\n\n").expect("text follows the table");
    let expected = format!("{before}{table}\n{after}");
    if std::env::var_os("DOORMAN_UPDATE").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/MODEL.md");
        fs::write(path, &expected).expect("it can be written");
    } else {
        assert!(
            text == expected,
            "docs/MODEL.md is out of date: DOORMAN_UPDATE=1 writes it"
        );
    }
}
