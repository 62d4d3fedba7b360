"""The methods of `Dataset` by what they do: they extend the plan (`transforms`, `columns`), run it (`consuming`,
`summarizing`, `splitting`) or write its rows (`writing`). Each class extends the one before; the first is
`plan_holder.PlanHolder`. `compute` reads the options of tasks and actors."""
