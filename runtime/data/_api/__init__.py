"""The methods of `Dataset` by what they do: they extend the plan (`transforms`, `columns`), run it (`consuming`,
`splitting`) or write its rows (`writing`). `compute` reads the options of tasks and actors."""
