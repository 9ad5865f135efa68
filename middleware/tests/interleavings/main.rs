//! The parts that threads share without a lock, in every order that their steps and their view of memory can take: loom runs each of
//! these tests once for every one of them, up to so many preemptions.
//!
//! They are the very files of the crate; only what they are made of is another, which loom can see into. It sees most of what memory may
//! do, not all: that the words need their two fences it does not find out.

#![cfg(test)]

#[path = "../../src/limiter/cell.rs"]
mod cell;
#[path = "../../src/limiter/hunger.rs"]
mod hunger;
mod sync;
#[expect(dead_code, reason = "what is not looked at here")]
#[path = "../../src/limiter/tenure.rs"]
mod tenure;

use loom::{model::Builder, sync::Arc, thread};

use self::{
    cell::{AtomicF64, Words},
    hunger::Hunger,
    tenure::{FIXED, KEYED, Room, Tenure},
};

/// More than three in one run show hardly anything, and take for ever.
const PREEMPTIONS: usize = 3;

fn in_every_order(run: impl Fn() + Sync + Send + 'static) {
    let mut model = Builder::new();
    model.preemption_bound = Some(PREEMPTIONS);
    model.check(run);
}

#[test]
fn words_are_read_as_they_were_written_together_and_never_go_back() {
    in_every_order(|| {
        let words = Arc::new(Words::new([0; 2]));
        let writer = {
            let words = Arc::clone(&words);
            thread::spawn(move || {
                for _ in 0..2 {
                    words.update(|old| (old.map(|word| word + 1), ()));
                }
            })
        };
        let mut last = 0;
        for _ in 0..2 {
            let [one, other] = words.read();
            assert_eq!(one, other, "half written");
            assert!(one >= last, "went back in time");
            last = one;
        }
        writer.join().unwrap();
        assert_eq!(words.read(), [2; 2]);
    });
}

#[test]
fn writers_of_words_go_one_after_the_other() {
    in_every_order(|| {
        let words = Arc::new(Words::new([0; 2]));
        let writer = || {
            let words = Arc::clone(&words);
            thread::spawn(move || words.update(|old| (old.map(|word| word + 1), old[0])))
        };
        let writers = [writer(), writer()];
        let mut seen = writers.map(|writer| writer.join().unwrap());
        seen.sort_unstable();
        assert_eq!(seen, [0, 1]);
        assert_eq!(words.read(), [2; 2]);
    });
}

#[test]
fn no_token_is_taken_twice() {
    in_every_order(|| {
        let spent = Arc::new(AtomicF64::default());
        let taker = || {
            let spent = Arc::clone(&spent);
            // As a place is taken: only where it was seen free.
            thread::spawn(move || {
                let mut seen = spent.load();
                loop {
                    match spent.replace(seen, seen + 1.0) {
                        Ok(()) => return seen,
                        Err(actual) => seen = actual,
                    }
                }
            })
        };
        let takers = [taker(), taker()];
        spent.update(|spent| spent + 1.0);
        let taken = takers.map(|taker| taker.join().unwrap());
        assert_ne!(taken[0], taken[1]);
        assert_eq!(spent.load(), 3.0);
    });
}

#[test]
fn hunger_is_told_by_one_until_it_is_heard() {
    in_every_order(|| {
        let hunger = Arc::new(Hunger::default());
        let hungry = || {
            let hunger = Arc::clone(&hunger);
            thread::spawn(move || u32::from(hunger.tell()))
        };
        let requests = [hungry(), hungry()];
        let told: u32 = requests.into_iter().map(|it| it.join().unwrap()).sum();
        assert_eq!(told, 1);
        hunger.heard();
        assert!(hunger.tell(), "was heard meanwhile");
    });
}

#[test]
fn a_limiter_stays_or_is_forgotten_and_gives_its_room_back_once() {
    in_every_order(|| {
        let (tenure, room) = (Arc::new(Tenure::new(KEYED)), Arc::new(Room::for_keys(1)));
        assert!(room.take());
        let ends = |end: fn(&Tenure) -> Option<u8>| {
            let (tenure, room) = (Arc::clone(&tenure), Arc::clone(&room));
            thread::spawn(move || {
                let before = end(&tenure);
                if before.is_some_and(|bits| bits & KEYED != 0) {
                    room.give_back();
                }
                before.is_some()
            })
        };
        let forgotten = [ends(Tenure::retire), ends(Tenure::retire)];
        let stays = tenure.fix(FIXED);
        if stays.is_some_and(|bits| bits & KEYED != 0) {
            room.give_back();
        }
        let forgotten: usize = forgotten
            .into_iter()
            .map(|it| usize::from(it.join().unwrap()))
            .sum();
        assert_eq!(forgotten + usize::from(stays.is_some()), 1);
        assert_eq!(tenure.stays(), stays.is_some());
        assert_eq!(room.taken(), 0);
    });
}

#[test]
fn there_is_never_more_taken_than_there_is_room_for() {
    in_every_order(|| {
        let room = Arc::new(Room::for_keys(1));
        let key = || {
            let room = Arc::clone(&room);
            thread::spawn(move || {
                let taken = room.take();
                assert!(room.taken() <= 1);
                taken
            })
        };
        let keys = [key(), key()];
        let taken = keys.map(|key| key.join().unwrap());
        assert_ne!(taken[0], taken[1]);
        room.give_back();
        assert!(room.take());
    });
}
