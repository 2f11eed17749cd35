//! Checker 7: released, newest checkpoint, applied, committed and head of a log are in this order.

use super::LogLook;
use borzoi_types::Op;

/// See the module.
#[derive(Debug, Default)]
pub struct OrderOfMarks {
    /// How often it looked.
    pub looked: u64,
}

impl OrderOfMarks {
    /// Looks at a log of a node.
    pub fn look(&mut self, look: LogLook<'_>) {
        let replica = look.replica;
        let marks = [
            replica.released(),
            look.checkpoint.unwrap_or(replica.released()).max(replica.released()),
            look.applied,
            replica.commit(),
            replica.head(),
        ];
        let checkpoint = look.checkpoint.unwrap_or(Op::ZERO);
        assert!(checkpoint <= look.applied, "checker 7: checkpoint above applied");
        Self::ordered(&marks);
        self.looked += 1;
    }

    fn ordered(marks: &[Op]) {
        assert!(marks.is_sorted(), "checker 7: marks of a log are out of order: {marks:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "out of order")]
    fn marks_out_of_order_are_noticed() {
        OrderOfMarks::ordered(&[Op(1), Op(2), Op(2), Op(3)]);
        OrderOfMarks::ordered(&[Op(1), Op(3), Op(2)]);
    }
}
