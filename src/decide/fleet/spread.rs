//! A matrix divided over boards: who runs what next, from what every board says that it has.
//!
//! Pure and without memory: whoever asks all boards and calls [`deal`] comes to the same orders, so a desk may be ended
//! between any two of them. What is counted is never asked for again; what a living board still has to do is expected of
//! it and given to nobody else; what a lost board had not done goes to the others. A board that comes back late only adds
//! trials.

use std::collections::{BTreeMap, BTreeSet};

use crate::decide::fleet::share::{Share, order_seed};
use crate::model::ids::{CellId, ContentDigest, DeviceId};

/// A cell and how often it is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedCell {
    /// Its id.
    pub id: CellId,
    /// Counted trials over all boards.
    pub trials: u32,
    /// Tags that a board must have for it.
    pub tags: BTreeSet<String>,
}

/// What may be expected of a board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It takes orders.
    Ready,
    /// It takes none, and finishes what it has: it was not chosen, or a person stopped it.
    Resting,
    /// Nothing: it is lost or unfit. What it has counted is counted.
    Gone,
}

/// How far a share is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Course {
    /// Somebody is at work on it, or a boot will carry it on.
    Working,
    /// It is unfinished, and nobody is at work on it.
    Halted,
    /// It is over, as planned: what it is short of, its board could not do.
    Complete,
    /// A limit ended it: nothing more is to be asked of its board.
    Stopped,
    /// Only a copy is left of it.
    Copied,
}

/// What a share has of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CellSaid {
    /// Counted trials asked for.
    pub wanted: u32,
    /// Counted trials.
    pub counted: u32,
    /// Whether it is not started again.
    pub set_aside: bool,
}

impl CellSaid {
    fn left(self) -> u32 {
        if self.set_aside { 0 } else { self.wanted.saturating_sub(self.counted) }
    }
}

/// A share as its board tells of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareSaid {
    /// The share.
    pub share: Share,
    /// How far it is.
    pub course: Course,
    /// What it has of each of its cells.
    pub cells: BTreeMap<CellId, CellSaid>,
}

impl ShareSaid {
    /// Counted trials.
    pub fn counted(&self) -> u64 {
        self.cells.values().map(|cell| u64::from(cell.counted)).sum()
    }

    fn is_open(&self) -> bool {
        match self.course {
            Course::Working | Course::Halted => true,
            Course::Complete | Course::Stopped | Course::Copied => false,
        }
    }
}

/// What is known of a board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoardSaid {
    /// Its name.
    pub name: DeviceId,
    /// Its tags.
    pub tags: Vec<String>,
    /// What may be expected of it.
    pub role: Role,
    /// Its shares of this division.
    pub shares: Vec<ShareSaid>,
}

impl BoardSaid {
    /// Whether it may be given trials of `cell`, now or when it is done with what it has.
    fn can(&self, cell: &WantedCell) -> bool {
        let is_barred = |said: &ShareSaid| match said.course {
            Course::Stopped => true,
            Course::Complete => said.cells.get(&cell.id).is_some_and(|cell| cell.counted < cell.wanted),
            Course::Working | Course::Halted => said.cells.get(&cell.id).is_some_and(|cell| cell.set_aside),
            Course::Copied => false,
        };
        self.role == Role::Ready
            && cell.tags.iter().all(|tag| self.tags.contains(tag))
            && !self.shares.iter().any(is_barred)
    }

    fn is_free(&self) -> bool {
        self.role == Role::Ready && !self.shares.iter().any(ShareSaid::is_open)
    }

    fn counted(&self, cell: &CellId) -> u32 {
        self.shares.iter().filter_map(|said| said.cells.get(cell)).map(|cell| cell.counted).sum()
    }

    /// What it is expected to count yet.
    fn pending(&self, cell: &CellId) -> u32 {
        let open = self.shares.iter().filter(|said| said.is_open() && self.role != Role::Gone);
        open.filter_map(|said| said.cells.get(cell)).map(|cell| cell.left()).sum()
    }
}

/// What is divided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// See [`Share::of`].
    pub of: ContentDigest,
    /// See [`Share::generation`].
    pub generation: u32,
    /// The seed of the matrix.
    pub seed: u64,
    /// Its cells, controls left out: every board has all of those.
    pub cells: Vec<WantedCell>,
}

/// A share that a board is to begin, or to go on with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Order {
    /// The board, by its place.
    pub board: usize,
    /// The share.
    pub share: Share,
    /// Whether the board has it already.
    pub is_there: bool,
}

/// Trials that nobody is left for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Short {
    /// The cell.
    pub cell: CellId,
    /// How many.
    pub missing: u32,
}

/// What is to be done, and where the whole stands before it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Deal {
    /// One order a board at most, and none for one that is at work.
    pub orders: Vec<Order>,
    /// What no board may be given.
    pub short: Vec<Short>,
    /// Trials that wait for a board that is at work.
    pub waiting: u64,
    /// Counted trials wanted.
    pub wanted: u64,
    /// Of those, counted: trials beyond what a cell wants are in no sum.
    pub counted: u64,
    /// Expected of boards that have them.
    pub pending: u64,
}

impl Deal {
    /// Whether every cell has its trials.
    pub fn is_complete(&self) -> bool {
        self.counted == self.wanted
    }
}

/// Divides what is missing of `whole` over the boards that are free: as many blocks for each as for any other, so that
/// every board tries the cells side by side, as far as they may run on it.
pub fn deal(whole: &Whole, boards: &[BoardSaid]) -> Deal {
    let mut deal = Deal::default();
    let mut rounds: Vec<BTreeMap<CellId, u32>> = boards.iter().map(|_| BTreeMap::new()).collect();
    for cell in &whole.cells {
        let counted: u32 = boards.iter().map(|board| board.counted(&cell.id)).sum();
        let pending: u32 = boards.iter().map(|board| board.pending(&cell.id)).sum();
        deal.wanted += u64::from(cell.trials);
        deal.counted += u64::from(counted.min(cell.trials));
        deal.pending += u64::from(pending.min(cell.trials.saturating_sub(counted)));
        let missing = cell.trials.saturating_sub(counted + pending);
        let able: Vec<usize> = (0..boards.len()).filter(|&board| boards[board].can(cell)).collect();
        let takers: Vec<usize> = able.iter().copied().filter(|&board| boards[board].is_free()).collect();
        match (takers.len() as u32, able.is_empty()) {
            (0, _) if missing == 0 => {}
            (0, true) => deal.short.push(Short { cell: cell.id.clone(), missing }),
            (0, false) => deal.waiting += u64::from(missing),
            (count, _) => {
                let (each, rest) = (missing / count, missing % count);
                for (place, &board) in (0u32..).zip(&takers) {
                    let own = each + u32::from(place < rest);
                    if own > 0 {
                        rounds[board].insert(cell.id.clone(), own);
                    }
                }
            }
        }
    }
    let begun = rounds.into_iter().enumerate().filter(|(_, rounds)| !rounds.is_empty()).map(|(board, rounds)| {
        let part = 1 + boards[board].shares.iter().map(|said| said.share.part).max().unwrap_or(0);
        let order = order_seed(whole.seed, &boards[board].name, whole.generation, part);
        let share = Share { of: whole.of.clone(), generation: whole.generation, part, order, rounds };
        Order { board, share, is_there: false }
    });
    deal.orders.extend(begun);
    for (board, said) in boards.iter().enumerate().filter(|(_, said)| said.role == Role::Ready) {
        let is_at_work = said.shares.iter().any(|share| share.course == Course::Working);
        let halted = said.shares.iter().find(|share| share.course == Course::Halted && !is_at_work);
        deal.orders.extend(halted.map(|halted| Order { board, share: halted.share.clone(), is_there: true }));
    }
    deal
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cell(n: usize) -> CellId {
        CellId::of(format!("cell {n}").as_bytes())
    }

    fn whole(trials: &[u32]) -> Whole {
        let cells = trials.iter().enumerate();
        Whole {
            of: ContentDigest::of(b"x"),
            generation: 1,
            seed: 7,
            cells: cells.map(|(n, &trials)| WantedCell { id: cell(n), trials, tags: BTreeSet::new() }).collect(),
        }
    }

    fn board(n: usize) -> BoardSaid {
        let name = format!("orin-{n}").parse().unwrap();
        BoardSaid { name, tags: vec!["orin".into()], role: Role::Ready, shares: Vec::new() }
    }

    /// The boards do what they are told to.
    fn obey(boards: &mut [BoardSaid], orders: &[Order]) {
        for order in orders {
            let shares = &mut boards[order.board].shares;
            assert!(shares.iter().all(|said| said.course != Course::Working), "a second order to one that works");
            match shares.iter_mut().find(|said| said.share.is_same(&order.share)) {
                Some(there) => {
                    assert!(order.is_there);
                    there.course = Course::Working;
                }
                None => {
                    assert!(!order.is_there);
                    let said = |rounds: &u32| CellSaid { wanted: *rounds, ..CellSaid::default() };
                    let cells = order.share.rounds.iter().map(|(id, rounds)| (id.clone(), said(rounds))).collect();
                    shares.push(ShareSaid { share: order.share.clone(), course: Course::Working, cells });
                }
            }
        }
    }

    fn obey_all(boards: &mut [BoardSaid], whole: &Whole) {
        let orders = deal(whole, boards).orders;
        obey(boards, &orders);
    }

    /// The open share of a board goes on by `trials` trials, and is over if it has all.
    fn work(board: &mut BoardSaid, trials: u32) {
        let Some(said) = board.shares.iter_mut().find(|said| said.course == Course::Working) else { return };
        for _ in 0..trials {
            if let Some(cell) = said.cells.values_mut().find(|cell| cell.left() > 0) {
                cell.counted += 1;
            }
        }
        if said.cells.values().all(|cell| cell.left() == 0) {
            said.course = Course::Complete;
        }
    }

    fn counted(boards: &[BoardSaid], n: usize) -> u32 {
        boards.iter().map(|board| board.counted(&cell(n))).sum()
    }

    #[test]
    fn blocks_are_divided_and_stay_whole() {
        let boards = [board(1), board(2), board(3)];
        let deal = deal(&whole(&[20, 20]), &boards);
        let rounds: Vec<Vec<u32>> =
            deal.orders.iter().map(|order| order.share.rounds.values().copied().collect()).collect();
        assert_eq!(rounds, [vec![7, 7], vec![7, 7], vec![6, 6]]);
        assert_eq!((deal.wanted, deal.counted, deal.pending, deal.waiting), (40, 0, 0, 0));
    }

    #[test]
    fn what_a_lost_board_had_not_done_goes_to_others_once_they_are_free_and_its_return_changes_nothing() {
        let whole = whole(&[10, 10]);
        let mut boards = [board(1), board(2)];
        obey_all(&mut boards, &whole);
        work(&mut boards[0], 4);
        boards[0].role = Role::Gone;
        let now = deal(&whole, &boards);
        assert!(now.orders.is_empty());
        assert_eq!((now.waiting, now.pending, now.counted), (6, 10, 4));
        work(&mut boards[1], 100);
        let after = deal(&whole, &boards);
        let [order] = &after.orders[..] else { panic!("{after:?}") };
        assert_eq!((order.board, order.share.part, order.share.rounds.values().sum::<u32>()), (1, 2, 6));
        obey(&mut boards, &after.orders);
        work(&mut boards[1], 100);
        assert!(deal(&whole, &boards).is_complete());
        boards[0].role = Role::Ready;
        work(&mut boards[0], 100);
        let late = deal(&whole, &boards);
        assert!(late.orders.is_empty() && late.is_complete());
    }

    #[test]
    fn a_cell_runs_only_where_its_tags_are_and_never_again_where_it_could_not() {
        let mut whole = whole(&[4, 4]);
        whole.cells[1].tags.insert("jp62".into());
        let mut boards = [board(1), board(2)];
        boards[1].tags.push("jp62".into());
        let first = deal(&whole, &boards);
        assert!(!first.orders[0].share.rounds.contains_key(&cell(1)));
        assert_eq!(first.orders[1].share.rounds[&cell(1)], 4);
        obey(&mut boards, &first.orders);
        // The second board cannot do any of it, and the first may not.
        for said in boards[1].shares[0].cells.values_mut() {
            said.counted = 0;
        }
        boards[1].shares[0].course = Course::Complete;
        work(&mut boards[0], 100);
        let after = deal(&whole, &boards);
        assert_eq!(after.short, [Short { cell: cell(1), missing: 4 }]);
        assert_eq!(after.orders.len(), 1);
        assert_eq!((after.orders[0].board, after.orders[0].share.rounds[&cell(0)]), (0, 2));
    }

    #[test]
    fn a_person_who_stopped_a_board_is_not_overruled_by_the_others() {
        let whole = whole(&[4]);
        let mut boards = [board(1), board(2)];
        obey_all(&mut boards, &whole);
        boards[0].shares[0].course = Course::Halted;
        boards[0].role = Role::Resting;
        work(&mut boards[1], 100);
        let resting = deal(&whole, &boards);
        assert!(resting.orders.is_empty() && resting.short.is_empty());
        assert_eq!(resting.pending, 2);
        boards[0].role = Role::Ready;
        let [order] = &deal(&whole, &boards).orders[..] else { panic!() };
        assert!(order.is_there && order.board == 0 && order.share.part == 1);
        boards[0].shares[0].course = Course::Stopped;
        let [order] = &deal(&whole, &boards).orders[..] else { panic!() };
        assert_eq!((order.board, order.share.rounds[&cell(0)]), (1, 2), "a limit ended it there");
    }

    proptest! {
        /// Whatever happens to the boards, and however often the desk forgets everything: as long as one of them stays,
        /// every cell gets its trials; while none is lost, none gets more; and what is ordered is never more than what is
        /// missing.
        #[test]
        fn nothing_is_lost_and_nothing_is_done_twice_by_boards_that_live(
            trials in prop::collection::vec(0u32..9, 1..4),
            count in 1usize..5,
            course in prop::collection::vec((0usize..5, 0u32..12, 0u8..8), 0..60),
        ) {
            let whole = whole(&trials);
            let mut boards: Vec<BoardSaid> = (1..=count).map(board).collect();
            let mut was_lost = false;
            for (which, steps, happening) in course {
                let now = deal(&whole, &boards);
                for (n, wanted) in trials.iter().enumerate() {
                    let ordered: u32 = (now.orders.iter().filter(|order| !order.is_there))
                        .filter_map(|order| order.share.rounds.get(&cell(n))).sum();
                    let pending: u32 = boards.iter().map(|board| board.pending(&cell(n))).sum();
                    prop_assert!(ordered <= wanted.saturating_sub(counted(&boards, n) + pending));
                }
                // The desk may be ended before all orders went out.
                let sent = now.orders.len().min(usize::from(happening));
                obey(&mut boards, &now.orders[..sent]);
                let which = which % count;
                match happening {
                    0 if which > 0 => {
                        boards[which].role = Role::Gone;
                        was_lost = true;
                    }
                    1 => boards[which].role = Role::Ready,
                    2 => boards[which].shares.iter_mut().filter(|said| said.course == Course::Working)
                        .for_each(|said| said.course = Course::Halted),
                    _ => work(&mut boards[which], steps),
                }
            }
            for _ in 0..20 {
                obey_all(&mut boards, &whole);
                boards.iter_mut().filter(|board| board.role == Role::Ready).for_each(|board| work(board, 1000));
            }
            let end = deal(&whole, &boards);
            prop_assert!(end.is_complete() && end.orders.is_empty(), "{end:?}");
            for (n, wanted) in trials.iter().enumerate() {
                prop_assert!(counted(&boards, n) >= *wanted);
                prop_assert!(was_lost || counted(&boards, n) == *wanted);
            }
        }
    }
}
